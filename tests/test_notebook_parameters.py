"""The parameters cell is read exactly, and nothing but a declared, fitting, harmless value passes."""

# mypy: disable-error-code="no-untyped-call"

from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.notebook_parameters import (
    Parameter,
    ParameterError,
    check_parameters,
    parse_parameters,
    read_parameters,
)

CELL = """\
# What to send, and where.
prompts: str = "data/prompts.jsonl?a=1&b=2"  # file of prompts
limit: int | None = None  # prompts to send; None for all
temperature: float = -0.5  # of sampling
live: bool = False  # spend money
hosts: list[str] = [
    "a",  # the first
    "b",
]  # hosts, in order
effort: Literal["low", "high"] = "low"  # how long to think # really
max_tokens: int = 100
"""


def notebook_with(tmp_path: Path, *parameter_cells: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]}) for source in parameter_cells]
    path = tmp_path / "some.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T"), *cells]), path)
    return path


def checked(annotation: str, value: Any) -> Any:
    """`value` given to a parameter of that annotation."""
    return check_parameters({"p": Parameter("p", annotation, None, "")}, {"p": value})["p"]


def test_names_annotations_defaults_and_help_are_read(tmp_path: Path) -> None:
    assert list(read_parameters(notebook_with(tmp_path, CELL)).values()) == [
        Parameter("prompts", "str", "data/prompts.jsonl?a=1&b=2", "file of prompts"),
        Parameter("limit", "int | None", None, "prompts to send; None for all"),
        Parameter("temperature", "float", -0.5, "of sampling"),
        Parameter("live", "bool", False, "spend money"),
        Parameter("hosts", "list[str]", ["a", "b"], "hosts, in order"),
        Parameter("effort", "Literal['low', 'high']", "low", "how long to think # really"),
        Parameter("max_tokens", "int", 100, ""),
    ]


def test_a_notebook_without_a_parameters_cell_has_none(tmp_path: Path) -> None:
    assert read_parameters(notebook_with(tmp_path)) == {}


def test_two_tagged_cells_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="2 cells are tagged"):
        read_parameters(notebook_with(tmp_path, "a: int = 1", "a: int = 2"))


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("limit = 3", "line 1 .* write `name: type = literal"),
        ("limit: int", "write `name: type = literal"),
        ("import os", "write `name: type = literal"),
        ("a: int = 1\nout: str = f'x/{a}'", "line 2 .* must be a literal"),
        ("a: int = 1\na: int = 2", "declares a twice"),
        ("a: list[str] = {[]: 1}", "must be a literal"),
        ("%matplotlib inline", "line 1 .* is not Python"),
        ("a: dict = {}", "dict is no type of a parameter"),
        ("a: int = 'x'", "not 'x'"),
        ("a: int = '7'", "the default of a is '7', not int"),
        ("a: int = True", "parameter a is int, not True"),
        ("a: float = 1e999", "parameter a is float, not inf"),
    ],
)
def test_anything_but_annotated_fitting_literals_is_refused(cell: str, says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        parse_parameters(cell, "some.ipynb")


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        ("bool", "false", False),
        ("bool", "True", True),
        ("int", "7", 7),
        ("int", "-7", -7),
        ("float", "1e-5", 1e-5),
        ("float", "3", 3.0),
        ("str", "007", "007"),
        ("str", "false", "false"),
        ("str", "None", "None"),
        ("str | None", "None", None),
        ("int | None", "null", None),
        ("int | None", "12", 12),
        ("Literal['low', 'high']", "high", "high"),
        ("list[str]", "a, 你好", ["a", "你好"]),
        ("list[str]", '["a, b", "c"]', ["a, b", "c"]),
        ("list[str]", "", []),
        ("list[int]", "1,2", [1, 2]),
        ("list[int] | None", "[1]", [1]),
    ],
)
def test_a_string_is_converted_by_the_annotation(annotation: str, text: str, value: Any) -> None:
    converted = checked(annotation, text)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("int", "seven"),
        ("int", 7.0),
        ("int", True),
        ("bool", 1),
        ("bool", "maybe"),
        ("str", 7),
        ("str", Path("x")),
        ("str", b"x"),
        ("str", None),
        ("str", "\ud83d"),
        ("float", float("nan")),
        ("float", "nan"),
        ("float | None", float("-inf")),
        ("list[float]", [1.0, float("nan")]),
        ("list[float]", "[NaN]"),
        ("list[str]", ("a", "b")),
        ("list[str]", ["a", 1]),
        ("Literal['low', 'high']", "middle"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(annotation: str, value: Any) -> None:
    with pytest.raises(ParameterError, match="parameter p is "):
        checked(annotation, value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_string_for_a_string_is_never_changed(text: str) -> None:
    assert checked("str", f" {text}") == f" {text}"


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_what_python_prints_is_read_back(number: int, real: float, flag: bool) -> None:
    assert checked("int", str(number)) == number
    assert checked("float", str(real)) == real
    assert checked("bool", str(flag)) is flag


def test_an_unknown_name_is_refused_and_the_nearest_named() -> None:
    declared = parse_parameters(CELL, "some.ipynb")
    with pytest.raises(ParameterError, match="no parameter temprature; did you mean temperature"):
        check_parameters(declared, {"temprature": "1"})
    with pytest.raises(ParameterError, match="no parameter max_token; did you mean max_tokens"):
        check_parameters(declared, {"max_token": "1"})
    with pytest.raises(ParameterError, match="no parameter zzz; declared are: prompts, limit"):
        check_parameters(declared, {"zzz": "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_key", "plainlookingvalue"),
        ("prompts", "sk-or-v1-0123456789abcdef"),
        ("prompts", "sk-Ab3dEf6hIj9kLm2nOp5q"),
        ("prompts", "hf_ABCDEFGHIJKLMNOPQRST"),
        ("hosts", ["hf_ABCDEFGHIJKLMNOPQRST"]),
        ("sk-or-v1-0123456789abcdef", "x"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match="environment") as caught:
        check_parameters(parse_parameters(CELL, "some.ipynb"), {name: value})
    secret = value[0] if isinstance(value, list) else value
    for text in (secret, "0123456789abcdef"):
        assert text == "x" or text not in str(caught.value)


def test_the_value_of_a_secret_variable_is_no_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "correct horse")
    with pytest.raises(ParameterError, match="looks like a secret") as caught:
        checked("str", "correct horse")
    assert "horse" not in str(caught.value)
