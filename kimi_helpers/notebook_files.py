"""Notebook files: read with one clear error, built, and written whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from kimi_helpers.workspace import write_whole


class NotebookError(ValueError):
    """A notebook that cannot be run as it is; the text says what to do."""


def load_notebook(path: Path) -> NotebookNode:
    """The notebook, in the newest minor version of format 4.

    Raises:
        NotebookError: no such file, or the file holds no notebook.
    """
    try:
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise NotebookError(f"{path}: cannot be read ({error.strerror}); give the path of a notebook") from error
    except (ValueError, AttributeError, RecursionError, nbformat.ValidationError) as error:
        detail = str(error).strip().split("\n")[0][:120]
        raise NotebookError(f"{path}: is no notebook ({detail}); give an .ipynb file of format 4") from error
    upgraded: NotebookNode = nbformat.v4.upgrade(notebook)  # type: ignore[no-untyped-call]
    return upgraded


def save_notebook(notebook: NotebookNode, path: Path) -> None:
    """Writes the notebook; text stays readable, since JSON's escapes are used only where it needs them."""
    write_whole(path, (nbformat.writes(notebook) + "\n").encode())  # type: ignore[no-untyped-call]


def code_cell(source: str, tag: str) -> NotebookNode:
    """A new code cell."""
    cell: NotebookNode = nbformat.v4.new_code_cell(source, metadata={"tags": [tag]})  # type: ignore[no-untyped-call]
    return cell


def markdown_cell(source: str, tag: str) -> NotebookNode:
    """A new markdown cell."""
    cell: NotebookNode = nbformat.v4.new_markdown_cell(source, metadata={"tags": [tag]})  # type: ignore[no-untyped-call]
    return cell


def has_tag(cell: NotebookNode, *tags: str) -> bool:
    """Whether the cell bears one of the tags."""
    return not set(tags).isdisjoint(cell.metadata.get("tags", []))


def counted_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The code cells that a kernel counts as `In [1]`, `In [2]` ...: an empty one is never sent to it."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def text_of(node: Any) -> str:
    """All strings of a notebook or of a part of it, a line each, unescaped."""
    if isinstance(node, Mapping):
        return "\n".join(f"{key}\n{text_of(value)}" for key, value in node.items())
    if isinstance(node, list):
        return "\n".join(text_of(value) for value in node)
    return node if isinstance(node, str) else ""
