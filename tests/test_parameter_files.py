"""Files of parameters mean what they say, and several values make several runs."""

from pathlib import Path
from typing import Any

import pytest

from kimi_helpers.notebook_parameters import ParameterError, check_parameters, parse_parameters
from kimi_helpers.parameter_files import combinations, read_parameter_file

CELL = """\
text: str = ""
other: str | None = None
rate: float = 0.0
count: int = 0
flag: bool = True
items: list[str] = []
numbers: list[int] = []
"""


def from_yaml(tmp_path: Path, text: str) -> dict[str, Any]:
    """What a notebook would be given by a file of that text."""
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    parameters, _ = read_parameter_file(tmp_path / "a.yaml")
    return check_parameters(parse_parameters(CELL, "some.ipynb"), parameters)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rate: 1e-5", {"rate": 1e-5}),
        ("text: no", {"text": "no"}),
        ("text: 012", {"text": "012"}),
        ("text: 1:30", {"text": "1:30"}),
        ("text: 2026-12-07", {"text": "2026-12-07"}),
        ("text: 1_000", {"text": "1_000"}),
        ("text: 你好", {"text": "你好"}),
        ("count: 12", {"count": 12}),
        ("flag: no", {"flag": False}),
        ("flag: False", {"flag": False}),
        ("other: ~", {"other": None}),
        ("other: null", {"other": None}),
        ("items: [no, 007, 1e3]", {"items": ["no", "007", "1e3"]}),
        ("numbers: [1, 2]", {"numbers": [1, 2]}),
        ("numbers: 1,2", {"numbers": [1, 2]}),
        ("common: &c {count: 3}\n", None),
    ],
)
def test_the_annotation_says_what_a_plain_value_is(tmp_path: Path, text: str, value: dict[str, Any] | None) -> None:
    if value is None:
        with pytest.raises(ParameterError, match="no parameter common"):
            from_yaml(tmp_path, text)
    else:
        assert from_yaml(tmp_path, text) == value


@pytest.mark.parametrize("text", ["count: 1:30", "rate: .nan", "rate: nan", "count: 1e3", "text: ~", "numbers: [1, x]"])
def test_a_value_of_another_type_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ParameterError, match=r"^parameter "):
        from_yaml(tmp_path, text)


def test_a_name_given_several_times_is_several_runs() -> None:
    runs = combinations([], [("dataset", "B3"), ("n", "1"), ("dataset", "B5")])
    assert runs == [({"n": "1", "dataset": "B3"}, {"dataset": "B3"}), ({"n": "1", "dataset": "B5"}, {"dataset": "B5"})]


def test_a_matrix_is_every_combination_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("n: 1\nmatrix:\n  dataset: [B3, B5]\n  samples: [1, 2]\n  one: [x]\n")
    files = [read_parameter_file(tmp_path / "a.yaml")]
    assert files == [({"n": "1"}, {"dataset": ["B3", "B5"], "samples": ["1", "2"], "one": ["x"]})]
    runs = combinations(files, [])
    assert [own for _, own in runs] == [
        {"dataset": dataset, "samples": samples} for dataset in ("B3", "B5") for samples in ("1", "2")
    ]
    assert all((values["n"], values["one"]) == ("1", "x") for values, _ in runs)
    assert [own for _, own in combinations(files, [("dataset", "B7")])] == [{"samples": "1"}, {"samples": "2"}]


def test_without_anything_there_is_one_run() -> None:
    assert combinations([], []) == [({}, {})]
