"""An executed notebook as one HTML file that can be mailed: it loads nothing and runs nothing."""

import re
from pathlib import Path

from nbconvert import HTMLExporter
from nbformat import NotebookNode
from traitlets.config import Config

from kimi_helpers.notebook_files import load_notebook
from kimi_helpers.workspace import write_whole

TEMPLATES = Path(__file__).parent / "templates"

# Outputs that need a script (widgets, JavaScript, LaTeX, mermaid) fall back to their text.
STATIC_OUTPUTS = ["text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]

_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_H1 = re.compile(r"^# +(.+?) *#*$", re.MULTILINE)


def render_html(executed: Path, html: Path) -> None:
    """Writes the notebook as HTML, whole or not at all.

    The page has the notebook's first H1 as its title (its file name where it has none), the alt text that an image
    output carries in its metadata (`{"image/png": {"alt": ...}}` or `{"alt": ...}`), no script, and a policy that
    forbids a browser to load or run anything else that an output may hold. HTML outputs are kept as they are: who
    makes one escapes the text in it.
    """
    notebook = load_notebook(executed)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["title"] = title_of(notebook) or executed.stem
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="kimi_report",
        extra_template_basedirs=[str(TEMPLATES)],
        config=Config({"NbConvertBase": {"display_data_priority": STATIC_OUTPUTS}}),
    )
    page, _ = exporter.from_notebook_node(notebook)
    write_whole(html, page.encode())


def title_of(notebook: NotebookNode) -> str | None:
    """The first H1 of the notebook's markdown cells, as plain text."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = _H1.search(_FENCED.sub("", cell.source))
            if heading:
                return re.sub(r"[`*]", "", heading[1])
    return None
