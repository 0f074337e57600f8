"""Notebook files are read with one clear error, and written readable."""

# mypy: disable-error-code="no-untyped-call"

from pathlib import Path

import nbformat
import pytest

from kimi_helpers.notebook_files import (
    NotebookError,
    code_cell,
    counted_cells,
    has_tag,
    load_notebook,
    markdown_cell,
    save_notebook,
    text_of,
)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nbformat": 5, "nbformat_minor": 0, "cells": [], "metadata": {}}'])
def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.ipynb"
    path.write_text(text)
    with pytest.raises(NotebookError, match=r"some\.ipynb: is no notebook"):
        load_notebook(path)


def test_a_missing_notebook_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match=r"absent\.ipynb: cannot be read .No such file"):
        load_notebook(tmp_path / "absent.ipynb")


def test_a_notebook_comes_back_as_it_was_saved_and_reads_well(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[markdown_cell("# 你好", "a"), code_cell("x = 1", "b")])
    save_notebook(notebook, tmp_path / "some.ipynb")
    assert load_notebook(tmp_path / "some.ipynb") == notebook
    assert "你好" in (tmp_path / "some.ipynb").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["some.ipynb"]


def test_a_notebook_of_an_older_minor_format_gets_cell_ids(tmp_path: Path) -> None:
    old = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x")])
    old.nbformat_minor = 4
    del old.cells[0]["id"]
    nbformat.write(old, tmp_path / "old.ipynb")
    notebook = load_notebook(tmp_path / "old.ipynb")
    assert notebook.nbformat_minor >= 5
    assert notebook.cells[0].id


def test_the_cells_that_a_kernel_counts() -> None:
    cells = [markdown_cell("x", "a"), code_cell("1", "a"), code_cell(" \n", "a"), code_cell("2", "a")]
    assert [cell.source for cell in counted_cells(nbformat.v4.new_notebook(cells=cells))] == ["1", "2"]


def test_tags() -> None:
    assert has_tag(code_cell("", "a"), "b", "a")
    assert not has_tag(code_cell("", "a"), "b")
    assert not has_tag(nbformat.v4.new_code_cell(""), "a")


def test_the_text_of_a_notebook_is_all_of_it() -> None:
    cell = code_cell("source", "tag")
    cell.outputs = [
        nbformat.v4.new_output("display_data", {"application/json": {"a key": ["deep"]}}, metadata={"meta": "data"}),
        nbformat.v4.new_output("error", ename="Name", evalue="value", traceback=["line"]),
    ]
    lines = text_of(nbformat.v4.new_notebook(cells=[cell], metadata={"title": "some title"})).split("\n")
    expected = {"source", "tag", "a key", "deep", "meta", "data", "Name", "value", "line", "some title"}
    assert expected <= set(lines)
