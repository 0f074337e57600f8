"""The verb `hidden-states`: what it writes, what it says, and its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from kimi_helpers.__main__ import main
from tests.tiny_models import HIDDEN, rows_of, tiny_folder, write_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder("llama", tmp_path_factory.mktemp("verb"))


def call(tmp_path: Path, *arguments: str) -> Result:
    rows = write_rows(tmp_path / "rows.parquet", rows_of([5, 9, 3]))
    return CliRunner().invoke(main, ["hidden-states", str(rows), "--out", str(tmp_path / "out"), *arguments])


def test_it_captures_and_goes_on(tmp_path: Path, model: Path) -> None:
    done = call(tmp_path, "--model", str(model), "--format", "speculators")
    assert done.exit_code == 0, done.output
    assert "3 rows, 17 tokens: about" in done.output
    assert load_file(tmp_path / "out/hidden_states/hs_1.safetensors")["hidden_states"].shape == (9, 4, HIDDEN)
    again = call(tmp_path, "--model", str(model), "--format", "speculators", "--verify")
    assert again.exit_code == 0
    assert "1 units, 0 of them captured now" in again.output


def test_layers_are_read_in_the_numbering_that_is_named(tmp_path: Path, model: Path) -> None:
    done = call(tmp_path, "--model", str(model), "--layers", "2,4,5,8", "--numbering", "vllm", "--limit", "2")
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["states"]["layers_sglang"] == [1, 3, 4]
    assert manifest["rows"]["count"] == 2
    assert manifest["model"]["compute"] == "float32"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--layers", "1,x"], "give numbers with commas"),
        (["--layers", "0,2", "--numbering", "vllm"], "0 is no layer in the numbering of vllm"),
        (["--format", "specforge", "--last-norm", "pre"], "specforge takes the last state post-norm"),
        (["--address", "somewhere"], "--address goes with --engine ray"),
        (["--model", "/nowhere"], "no model folder"),
    ],
)
def test_wrong_arguments_exit_with_2(tmp_path: Path, model: Path, arguments: list[str], told: str) -> None:
    done = call(tmp_path, "--model", str(model), *arguments)
    assert (done.exit_code, told in done.output) == (2, True), done.output
    assert not (tmp_path / "out").exists()
