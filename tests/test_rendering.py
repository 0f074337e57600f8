"""The HTML of a notebook stands alone and describes its figures."""

# mypy: disable-error-code="no-untyped-call"

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup

from kimi_helpers.rendering import render_html, title_of

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'


def output(data: dict[str, Any], **metadata: Any) -> nbformat.NotebookNode:
    new: nbformat.NotebookNode = nbformat.v4.new_output("display_data", data, metadata=metadata)
    return new


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A notebook with everything that nbconvert would fetch a script for."""
    folder = tmp_path_factory.mktemp("rendering")
    cell = nbformat.v4.new_code_cell("draw()", execution_count=1)
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "m"}, "text/plain": "a bar at 100%"}
    cell.outputs = [
        output({"image/png": PNG, "text/plain": "<Figure>"}, **{"image/png": {"alt": 'Rate "by" host & day'}}),
        output({"image/png": PNG}, alt="Top level"),
        output({"image/jpeg": PNG}, **{"image/jpeg": {"alt": "A photograph", "width": 40}}),
        output({"image/svg+xml": SVG}, **{"image/svg+xml": {"alt": "A line"}}),
        output(widget),
        output({"application/javascript": "alert(1)", "text/plain": "a script was here"}),
        output({"text/html": "<b>&lt;|im_end|&gt;</b>"}),
        output({"text/vnd.mermaid": "graph TD; A-->B", "text/plain": "A to B"}),
    ]
    cells = [
        nbformat.v4.new_markdown_cell("```\n# not a heading\n```\n# Quirks of `Kimi` & co\n\n$x^2$"),
        nbformat.v4.new_markdown_cell("## 1 Data"),
        cell,
    ]
    state = {"application/vnd.jupyter.widget-state+json": {"state": {"m": {}}, "version_major": 2, "version_minor": 0}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"widgets": state})
    nbformat.write(notebook, folder / "some.ipynb")
    render_html(folder / "some.ipynb", folder / "some.html")
    assert sorted(path.name for path in folder.iterdir()) == ["some.html", "some.ipynb"]
    return (folder / "some.html").read_text("utf-8")


def test_nothing_is_fetched_and_nothing_runs(page: str) -> None:
    soup = BeautifulSoup(page, "html.parser")
    assert soup.find_all(["script", "link", "iframe", "object", "embed"]) == []
    addresses = [
        str(tag[name]) for tag in soup.find_all() for name in ("src", "srcset", "data", "poster") if tag.has_attr(name)
    ]
    assert len(addresses) == 4
    assert all(address.startswith("data:image/") for address in addresses)
    for sheet in soup.find_all("style"):
        assert "@import" not in sheet.text
        assert re.findall(r"url\(\s*['\"]?(?!data:|#)", sheet.text) == []


def test_a_browser_is_told_to_load_and_run_nothing_else(page: str) -> None:
    policy = BeautifulSoup(page, "html.parser").select_one('meta[http-equiv="Content-Security-Policy"]')
    assert policy is not None
    assert str(policy["content"]).startswith("default-src 'none'; img-src data:;")
    assert "script-src" not in policy["content"]


def test_figures_keep_their_alt_text(page: str) -> None:
    images = BeautifulSoup(page, "html.parser").find_all("img")
    assert [image["alt"] for image in images] == ['Rate "by" host & day', "Top level", "A photograph", "A line"]
    assert images[2]["width"] == "40"
    assert images[0]["src"] == f"data:image/png;base64,{PNG}"


def test_language_title_and_one_heading(page: str) -> None:
    soup = BeautifulSoup(page, "html.parser")
    assert soup.html is not None
    assert soup.html["lang"] == "en"
    assert soup.title is not None
    assert soup.title.text == "Quirks of Kimi & co"
    assert len(soup.find_all("h1")) == 1


def test_outputs_that_need_a_script_fall_back_to_text(page: str) -> None:
    text = BeautifulSoup(page, "html.parser").get_text()
    for fallback in ("a bar at 100%", "a script was here", "A to B", "<|im_end|>"):
        assert fallback in text
    assert "alert(1)" not in page


def test_a_notebook_without_a_heading_is_titled_by_its_name(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("## second"), nbformat.v4.new_code_cell("# c")]
    )
    assert title_of(notebook) is None
    nbformat.write(notebook, tmp_path / "05_set.ipynb")
    render_html(tmp_path / "05_set.ipynb", tmp_path / "05_set.html")
    assert "<title>05_set</title>" in (tmp_path / "05_set.html").read_text("utf-8")
