"""The notebooks as they lie in the repository: clean, alike, and runnable by anyone's papermill."""

# mypy: disable-error-code="no-untyped-call"

import ast
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from kimi_helpers.leaks import find_leak, is_secret_name
from kimi_helpers.notebook_files import has_tag, load_notebook, text_of
from kimi_helpers.notebook_parameters import PARAMETERS_TAG, read_parameters

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def code_cells(path: Path) -> list[NotebookNode]:
    return [cell for cell in load_notebook(path).cells if cell.cell_type == "code"]


def headings(path: Path) -> list[tuple[int, str]]:
    """Level and text of every heading, in order."""
    markdown = [cell.source for cell in load_notebook(path).cells if cell.cell_type == "markdown"]
    text = re.sub(r"^(```|~~~).*?^\1", "", "\n\n".join(markdown), flags=re.MULTILINE | re.DOTALL)
    return [(len(marks), title.strip()) for marks, title in re.findall(r"^(#{1,6}) +(.+)$", text, re.MULTILINE)]


def test_there_are_notebooks_numbered_in_their_order() -> None:
    assert NOTEBOOKS
    assert all(re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem) for path in NOTEBOOKS)
    assert len({path.stem[:2] for path in NOTEBOOKS}) == len(NOTEBOOKS)


@each_notebook
def test_the_file_is_valid_as_it_stands(path: Path) -> None:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    assert (notebook.nbformat, notebook.nbformat_minor >= 5) == (4, True)
    assert nbformat.validator.isvalid(notebook)


@each_notebook
def test_nothing_of_a_run_is_in_it(path: Path) -> None:
    assert [cell.source for cell in code_cells(path) if cell.outputs or cell.execution_count is not None] == []
    assert [cell.source for cell in code_cells(path) if has_tag(cell, "injected-parameters")] == []
    assert {"widgets", "papermill", "kimi_run"}.isdisjoint(load_notebook(path).metadata)


@each_notebook
def test_it_names_the_kernel_that_everybody_has(path: Path) -> None:
    assert load_notebook(path).metadata.kernelspec.name == "python3"
    assert load_notebook(path).metadata.kernelspec.language == "python"


@each_notebook
def test_it_begins_with_its_only_title(path: Path) -> None:
    first = load_notebook(path).cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# \S", first.source)
    assert [title for level, title in headings(path) if level == 1] == [first.source.split("\n")[0].removeprefix("# ")]


@each_notebook
def test_its_sections_are_numbered_and_end_with_findings(path: Path) -> None:
    sections = [title for level, title in headings(path) if level == 2]
    numbered = [re.fullmatch(r"(\d+)\.? (.+)", title) for title in sections]
    assert [match and int(match[1]) for match in numbered] == list(range(1, len(sections) + 1))
    assert numbered
    assert numbered[-1] is not None
    assert numbered[-1][2] == "Findings"


@each_notebook
def test_no_heading_skips_a_level(path: Path) -> None:
    levels = [level for level, _ in headings(path)]
    assert all(below - above <= 1 for above, below in pairwise(levels))


@each_notebook
def test_one_cell_declares_its_parameters_and_says_what_they_do(path: Path) -> None:
    assert sum(has_tag(cell, PARAMETERS_TAG) for cell in code_cells(path)) == 1
    parameters = read_parameters(path)
    assert parameters
    assert [name for name, parameter in parameters.items() if not parameter.help] == []
    assert [name for name in parameters if is_secret_name(name)] == []


@each_notebook
def test_it_shows_the_versions_it_ran_with(path: Path) -> None:
    sources = [cell.source for cell in code_cells(path) if not has_tag(cell, PARAMETERS_TAG)]
    calls = [node for source in sources for node in ast.walk(_parse(source)) if isinstance(node, ast.Call)]
    assert any("version" in ast.unparse(call.func) for call in calls)


def _parse(source: str) -> ast.AST:
    return compile(source, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # type: ignore[no-any-return]


@each_notebook
def test_it_holds_no_secret_and_no_path_of_a_machine(path: Path) -> None:
    text = text_of(load_notebook(path))
    assert find_leak(text) is None
    assert re.findall(r"(?:/home/|/Users/|/root/|[A-Z]:\\\\)\S*", text) == []
