"""`outputs/site/`: an index of all runs, and a page a run with its notebooks, figures and data cards.

The folder can be copied to any web server or opened as it is: no page loads anything from elsewhere or runs a script.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kimi_helpers.data_cards import DataCard, data_card
from kimi_helpers.leaks import find_leak_in_file
from kimi_helpers.notebook_files import NotebookError, load_notebook
from kimi_helpers.page_safety import faults_of_page, make_accessible
from kimi_helpers.rendering import TEMPLATES, render_html, style_sheet
from kimi_helpers.run_record import MANIFEST
from kimi_helpers.run_stages import found

UNFINISHED = "unfinished"
MOST_FIGURE_BYTES = 150_000  # of base64, a figure; larger ones are in the notebook's page alone
MOST_FIGURES = 10


@dataclass(frozen=True)
class Figure:
    """A picture that a notebook made, as a `data:` address, with its alt text."""

    data: str
    alt: str


@dataclass(frozen=True)
class NotebookPage:
    """What is shown of the run of one notebook."""

    name: str
    verdict: str
    reason: str
    pages: tuple[str, ...]
    findings: tuple[str, ...]
    figures: tuple[Figure, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunPage:
    """What is shown of a run."""

    name: str
    verdict: str
    started: str
    seconds: float
    revision: str
    dirty: bool
    machine: str
    notebooks: tuple[NotebookPage, ...]
    cards: tuple[DataCard, ...]

    @property
    def names(self) -> list[str]:
        """The notebooks' names, without their suffix."""
        return [Path(notebook.name).stem for notebook in self.notebooks]

    @property
    def key_figures(self) -> list[str]:
        """The first finding of each notebook."""
        return [notebook.findings[0] for notebook in self.notebooks if notebook.findings]

    @property
    def reason(self) -> str:
        """Why it did not succeed; empty where it did."""
        return next((notebook.reason for notebook in self.notebooks if notebook.reason), "")


def build_site(outputs: Path, site: Path) -> list[str]:
    """Builds the site of all runs in `outputs`, whole, in the place of an earlier one.

    Returns:
        What is wrong with pages, a sentence each: something that a page would load, a size above the limit, a picture
        without alt text, a secret. A page that holds a secret is left out of the site.
    """
    faults: list[str] = []
    with TemporaryDirectory(dir=outputs, prefix=".site-") as beside:
        fresh = Path(beside, "site")
        runs = []
        for path in sorted(outputs.glob(f"*/{MANIFEST}"), reverse=True):
            try:
                runs.append(_run_page(path.parent, fresh))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                faults.append(f"{path.parent.name}: {MANIFEST} is no record of a run ({type(error).__name__})")
        runs.sort(key=lambda run: run.started, reverse=True)
        for run in runs:
            _write(fresh / run.name / "index.html", "site_run.html.j2", run=run)
        verdicts = sorted({run.verdict for run in runs})
        notebooks = sorted({name for run in runs for name in run.names})
        _write(fresh / "index.html", "site_index.html.j2", runs=runs, verdicts=verdicts, notebooks=notebooks)
        for page in sorted(fresh.rglob("*.html")):
            named = page.relative_to(fresh).as_posix()
            faults += [f"{named}: {fault}" for fault in faults_of_page(page)]
            if leak := find_leak_in_file(page):
                faults.append(f"{named}: {leak} is in it; it was left out")
                page.unlink()
        if site.exists():
            shutil.rmtree(site)
        fresh.replace(site)
        site.chmod(0o755)
    return faults


def _run_page(run_dir: Path, site: Path) -> RunPage:
    manifest = json.loads((run_dir / MANIFEST).read_text("utf-8"))
    target = site / run_dir.name
    target.mkdir(parents=True)
    notebooks = tuple(_notebook_page(record, run_dir, target) for record in manifest["notebooks"])
    host, git = manifest.get("host") or {}, manifest.get("git") or {}
    memory = f", {host['memory_bytes'] / 2**30:.0f} GiB" if host else ""
    return RunPage(
        name=run_dir.name,
        verdict=manifest["verdict"] or UNFINISHED,
        started=(manifest["started"] or "")[:19].replace("T", " "),
        seconds=manifest["seconds"],
        revision=git.get("revision", ""),
        dirty=git.get("dirty", False),
        machine=f"{host.get('system', '')} {host.get('machine', '')}, {host.get('cpus', '?')} CPUs{memory}",
        notebooks=notebooks,
        cards=tuple(_cards(manifest, run_dir)),
    )


def _notebook_page(record: Mapping[str, Any], run_dir: Path, target: Path) -> NotebookPage:
    executed = run_dir / record["notebook"]
    pages: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    try:
        if executed.exists():
            pages = tuple(page.name for page in render_html(executed, target / f"{executed.stem}.html"))
            figures = tuple(_figures(executed))[:MOST_FIGURES]
    except NotebookError:  # cut off by a kill of long ago: the record stands alone
        pass
    return NotebookPage(
        name=record["notebook"],
        verdict=record["verdict"] or UNFINISHED,
        reason=record.get("reason", ""),
        pages=pages,
        findings=tuple(record.get("findings", ())),
        figures=figures,
        facts=tuple(_facts(record)),
    )


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in record.get("parameters", {}).items():
        yield f"parameter {name}", json.dumps(value, ensure_ascii=False)
    for name, digest in record.get("inputs", {}).items():
        yield f"SHA-256 of {name}", digest
    for name in ("source_sha256", "code_sha256", "vocabulary_sha256", "peak_bytes"):
        if record.get(name):
            yield name, str(record[name])


def _figures(executed: Path) -> Iterator[Figure]:
    for cell in load_notebook(executed).cells:
        for output in cell.get("outputs", []):
            picture = output.get("data", {}).get("image/png")
            if picture and len(picture) <= MOST_FIGURE_BYTES:
                metadata = output.get("metadata", {})
                alt = metadata.get("image/png", {}).get("alt") or metadata.get("alt")
                data = "".join(picture.split())
                yield Figure(f"data:image/png;base64,{data}", alt or "A picture that the notebook does not describe.")


def _cards(manifest: Mapping[str, Any], run_dir: Path) -> Iterator[DataCard]:
    for record in manifest["notebooks"]:
        for name, made in record.get("made", {}).items():
            if Path(name).suffix not in {".html", ".ipynb"}:
                yield data_card(found(name, run_dir), name, made, record["notebook"])


def _write(path: Path, template: str, **values: Any) -> None:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    page = environment.get_template(template).render(css=style_sheet(), **values)
    path.write_text(make_accessible(page), "utf-8")
