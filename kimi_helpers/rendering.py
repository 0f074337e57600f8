"""An executed notebook as HTML that can be mailed: it loads nothing and runs nothing, on paper and on a phone."""

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

from nbconvert import HTMLExporter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

from kimi_helpers.notebook_files import load_notebook
from kimi_helpers.page_safety import LARGEST_PAGE, make_accessible, safe_html
from kimi_helpers.workspace import write_whole

TEMPLATES = Path(__file__).parent / "templates"
MOST_TEXT = 100_000  # characters of one output that a page shows

# Outputs that need a script (widgets, JavaScript, LaTeX, mermaid) fall back to their text.
STATIC_OUTPUTS = ["text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]

_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_H1 = re.compile(r"^# +(.+?) *#*$", re.MULTILINE)


def render_html(executed: Path, html: Path, largest: int = LARGEST_PAGE) -> list[Path]:
    """Writes the notebook as HTML, each page whole or not at all, and returns the pages.

    A page has the notebook's first H1 as its title (its file name where it has none), the alt text that an image
    output carries in its metadata (`{"image/png": {"alt": ...}}` or `{"alt": ...}`), code folded, no script, and a
    policy that forbids a browser to load or run anything else. What an output's HTML would run is shown as text. A
    notebook whose page would have more than `largest` bytes is split between cells into `NAME.html`, `NAME-2.html` ...
    """
    notebook = load_notebook(executed)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["title"] = title_of(notebook) or executed.stem
    for old in html.parent.glob(f"{html.stem}-*.html"):
        if re.fullmatch(r"-\d+", old.stem.removeprefix(html.stem)):
            old.unlink()
    whole = _render(notebook, notebook.cells, "")
    if len(whole.encode()) <= largest:
        write_whole(html, whole.encode())
        return [html]
    parts = _parts(notebook, largest)
    pages = [html, *(html.with_name(f"{html.stem}-{number}.html") for number in range(2, len(parts) + 1))]
    for page, cells in zip(pages, parts, strict=True):
        write_whole(page, _render(notebook, cells, _navigation(pages, page)).encode())
    return pages


def _parts(notebook: NotebookNode, largest: int) -> list[list[NotebookNode]]:
    """The cells in groups whose pages have at most `largest` bytes, where a single cell has no more."""
    frame = len(_render(notebook, [], "").encode()) + 2_000
    parts: list[list[NotebookNode]] = [[]]
    filled = frame
    for cell in notebook.cells:
        size = len(_render(notebook, [cell], "").encode()) - frame + 2_000
        if parts[-1] and filled + size > largest:
            parts.append([])
            filled = frame
        parts[-1].append(cell)
        filled += size
    return parts


def _navigation(pages: Sequence[Path], here: Path) -> str:
    links = (
        f"<b>{number}</b>" if page == here else f'<a href="{escape(page.name)}">{number}</a>'
        for number, page in enumerate(pages, 1)
    )
    return f'<nav aria-label="Pages">Pages of this notebook: {" ".join(links)}</nav>'


def _render(notebook: NotebookNode, cells: Sequence[NotebookNode], navigation: str) -> str:
    part = NotebookNode(notebook)  # type: ignore[no-untyped-call]
    part.cells = list(cells)
    part.metadata = notebook.metadata | {"kimi_css": style_sheet(), "kimi_nav": navigation}
    page, _ = _exporter().from_notebook_node(part)
    page = make_accessible(page)
    if "<h1" not in page:
        title = escape(notebook.metadata["title"])
        page = page.replace("<main>", f"<main>\n<h1>{title}</h1>", 1)
    return page


@cache
def _exporter() -> HTMLExporter:
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="kimi_report",
        extra_template_basedirs=[str(TEMPLATES)],
        config=Config({"NbConvertBase": {"display_data_priority": STATIC_OUTPUTS}}),
    )
    exporter.register_filter("safe_html", safe_html)  # type: ignore[no-untyped-call]
    exporter.register_filter("short", _short)  # type: ignore[no-untyped-call]
    return exporter


def _short(text: str) -> str:
    """The two ends of a text too long for a page."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n... {len(text) - MOST_TEXT:,} more characters are in the notebook ...\n{text[-half:]}"


@cache
def style_sheet() -> str:
    """The style of every page, with the colours of code for light and dark."""
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    own = (TEMPLATES / "page.css").read_text("utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{own}"


def title_of(notebook: NotebookNode) -> str | None:
    """The first H1 of the notebook's markdown cells, as plain text."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = _H1.search(_FENCED.sub("", cell.source))
            if heading:
                return re.sub(r"[`*]", "", heading[1])
    return None
