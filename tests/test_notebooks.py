"""The notebooks as they lie in the repository: clean, alike, and runnable by anyone's papermill."""

# mypy: disable-error-code="no-untyped-call"

import ast
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from kimi_helpers.leaks import find_leak, is_secret_name
from kimi_helpers.notebook_execution import Limits
from kimi_helpers.notebook_files import has_tag, load_notebook, text_of
from kimi_helpers.notebook_parameters import PARAMETERS_TAG, read_parameters
from kimi_helpers.page_safety import faults_of_page
from kimi_helpers.pipeline import known_pipeline
from kimi_helpers.run_record import Verdict
from kimi_helpers.runner import run_notebook
from kimi_helpers.workspace import ROOT

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


# The notebooks as they run: each by itself, as CI does, with the least that `data/pipeline.toml` gives it.


@each_notebook
def test_it_runs_headless_and_its_page_can_be_shared(path: Path, tmp_path: Path) -> None:
    out = {"out": str(tmp_path / "out")} if "out" in read_parameters(path) else {}
    given = out | known_pipeline().smallest.get(path.stem, {})
    run = run_notebook(path, given, tmp_path / "run", limits=Limits(cell=600))
    assert (run.verdict, run.reason) == (Verdict.succeeded, "")
    pages = sorted((tmp_path / "run").glob("*.html"))
    assert pages
    assert [fault for page in pages for fault in faults_of_page(page)] == []
    pictures = [picture for page in pages for picture in BeautifulSoup(page.read_text("utf-8"), "html.parser")("img")]
    assert [picture for picture in pictures if len(str(picture["alt"])) < 20 or "not describe" in picture["alt"]] == []
    assert run.findings
    assert run.peak_bytes


# The README names them all, and its lines work as they are written.

README = (ROOT / "README.md").read_text("utf-8")


def test_the_readme_has_an_index_of_the_notebooks() -> None:
    rows = re.findall(r"^\| `notebooks/(\w+\.ipynb)` \| (\S.*\?) \|$", README, re.MULTILINE)
    assert [name for name, _ in rows] == [path.name for path in NOTEBOOKS]


@each_notebook
def test_plain_papermill_runs_it_as_the_readme_says(path: Path, tmp_path: Path) -> None:
    """The README's line, with this notebook in the place of the one it names and its smallest parameters."""
    (line,) = re.findall(r"^ +(\.venv/bin/papermill notebooks/\S+ out\.ipynb)", README, re.MULTILINE)
    command = (
        line.replace("04_reconstruction.ipynb", path.name).replace("out.ipynb", str(tmp_path / "out.ipynb")).split()
    )
    given = {"out": str(tmp_path / "made")} | known_pipeline().smallest.get(path.stem, {})
    options = ["-y", json.dumps(given)]  # -p makes a text of a list
    done = subprocess.run(
        [*command, *options, "--no-progress-bar"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code" and cell.source.strip())


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8"))
        missing = [link for link in links if not (page.parent / link).exists()]
        assert missing in ([], ["datasets.md"])


# Commits are checked by the same tools.


def hooks() -> dict[str, list[str]]:
    """Name -> command of each hook."""
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    return {hook["id"]: hook["entry"].split() for repo in repos for hook in repo["hooks"]}


def test_a_commit_of_a_bad_notebook_is_stopped(tmp_path: Path) -> None:
    assert set(hooks()) == {"ruff-format", "ruff-check", "mypy", "notebooks"}
    assert "tests/test_notebooks.py" in hooks()["notebooks"]
    bad = tmp_path / "bad.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os\nx=undefined")]), bad)
    for name in ("ruff-format", "ruff-check"):
        check = ["--check"] if name == "ruff-format" else []
        for path, code in ((bad, 1), (NOTEBOOKS[0], 0)):
            done = subprocess.run([*hooks()[name], *check, str(path)], cwd=ROOT, capture_output=True, check=False)
            assert done.returncode == code, (name, path, done.stdout)
