"""The HTML of a notebook stands alone and describes its figures."""

# mypy: disable-error-code="no-untyped-call"

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup

from kimi_helpers.page_safety import faults_of_page
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


def test_code_is_folded_and_there(page: str) -> None:
    folded = BeautifulSoup(page, "html.parser").find("details")
    assert folded is not None
    assert "draw" in folded.text
    assert not folded.has_attr("open")


def test_a_page_fits_paper_phones_and_dark_rooms(page: str) -> None:
    soup = BeautifulSoup(page, "html.parser")
    assert soup.select_one('meta[name="viewport"][content^="width=device-width"]')
    sheet = "".join(style.text for style in soup.find_all("style"))
    for query in ("@media print", "@media (max-width", "@media (prefers-color-scheme: dark)"):
        assert query in sheet


ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)><a href='javascript:alert(3)'>x</a><b>kept</b>"


def notebook_of(folder: Path, *outputs: nbformat.NotebookNode, title: str = "# T") -> Path:
    cell = nbformat.v4.new_code_cell("x", execution_count=1)
    cell.outputs = list(outputs)
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(title), cell]), folder / "a.ipynb")
    return folder / "a.ipynb"


@pytest.mark.parametrize("kind", ["text/html", "text/markdown", "text/plain"])
def test_what_a_model_wrote_is_text(tmp_path: Path, kind: str) -> None:
    render_html(notebook_of(tmp_path, output({kind: ATTACK}), title=f"# T\n\n{ATTACK}"), tmp_path / "a.html")
    soup = BeautifulSoup((tmp_path / "a.html").read_text("utf-8"), "html.parser")
    assert soup.find_all(["script", "img"]) == []
    assert [name for tag in soup.find_all() for name in tag.attrs if name.startswith("on")] == []
    assert [link["href"] for link in soup.find_all("a") if "script" in str(link.get("href"))] == []
    assert soup.text.count("<script>alert(1)</script>") == 2
    assert [kept.text for kept in soup.find_all("b")] == ["kept"] * (1 if kind == "text/plain" else 2)
    assert faults_of_page(tmp_path / "a.html") == []


def test_tables_can_be_read_aloud(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1], "b": [2]}, index=["r"])._repr_html_()  # type: ignore[operator]
    render_html(notebook_of(tmp_path, output({"text/html": table})), tmp_path / "a.html")
    headers = BeautifulSoup((tmp_path / "a.html").read_text("utf-8"), "html.parser").find_all("th")
    assert [(header.text, header["scope"]) for header in headers] == [
        ("", "col"), ("a", "col"), ("b", "col"), ("r", "row"),
    ]  # fmt: skip


def test_a_page_too_large_is_split_between_cells_and_each_part_is_whole(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_markdown_cell("# T")]
    cells += [nbformat.v4.new_markdown_cell(f"## {n}\n\n" + f"word{n} " * 4_000) for n in range(6)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    (tmp_path / "a-9.html").write_text("of an earlier rendering")
    pages = render_html(tmp_path / "a.ipynb", tmp_path / "a.html", largest=100_000)
    assert len(pages) > 1
    assert sorted(tmp_path.glob("*.html")) == sorted(pages)
    assert [fault for page in pages for fault in faults_of_page(page, 100_000)] == []
    texts = [page.read_text("utf-8") for page in pages]
    assert [sum(f"word{n} " in text for text in texts) for n in range(6)] == [1] * 6
    assert all(f'href="{pages[1].name}"' in text for text in texts[:1])


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>1</script>", "it holds <script>"),
        ("<img src='https://host.invalid/a.png' alt='a'>", "it loads https://host.invalid/a.png"),
        ("<link rel=stylesheet href='//host.invalid/a.css'>", "it loads //host.invalid/a.css"),
        ("<style>@import 'a.css'</style>", "a style sheet loads something"),
        ("<style>p{background:url(http://host.invalid)}</style>", "a style sheet loads something"),
        ("<img src='data:image/png;base64,'>", "a picture has no alt text"),
        ("<table><tr><th>a</table>", "a table header has no scope"),
        ("<p onclick='x()'>", "<p> has onclick"),
        ("<h1>two</h1>", "it has 2 H1 headings"),
        ("x" * 3000, "it has 3,012 bytes, more than 3,000"),
    ],
)
def test_a_page_that_cannot_be_shared_is_told(tmp_path: Path, body: str, fault: str) -> None:
    (tmp_path / "a.html").write_text(f"<h1>one</h1>{body}")
    assert faults_of_page(tmp_path / "a.html", 3_000)[:1] == [fault]
