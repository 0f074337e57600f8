"""What is kept of a run: the executed notebook, its page, and the files it made, unless there is a secret in one."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode

from kimi_helpers.leaks import find_leak, find_leak_in_file
from kimi_helpers.notebook_files import counted_cells, save_notebook, text_of
from kimi_helpers.notebook_verdicts import stamp
from kimi_helpers.rendering import render_html
from kimi_helpers.run_record import NotebookRun, Verdict
from kimi_helpers.run_stages import Stamps, files_made, found
from kimi_helpers.workspace import write_whole

LONGEST_STREAM = 200_000  # characters of one output that a notebook keeps; a flood goes to a file
WITHHELD = ".withheld"


def publish(notebook: NotebookNode, run: NotebookRun, folders: Sequence[Path], before: Stamps) -> NotebookRun:
    """Writes notebook and page, and searches them and all that the run made for secrets.

    A hit fails the run. The notebook and its page are not kept then, since they can be made again; a file of data is
    moved to `.withheld` beside the run's folder, which only its owner can read: it may have cost money.

    Args:
        notebook: as executed.
        run: how it ended.
        folders: where the run may have written; its own folder first.
        before: the files that were there.
    """
    run = replace(run, findings=findings_of(notebook))
    leak = None
    try:
        _move_floods(notebook, run)
        stamp(notebook, run)
        leak = find_leak(text_of(notebook))
        if leak is None:
            save_notebook(notebook, run.executed)
            render_html(run.executed, run.html)
    except OSError as error:
        _remove(run)
        reason = f"the executed notebook could not be saved: {error.strerror or error}"
        return replace(run, verdict=Verdict.failed, reason=reason)
    except Exception as error:  # whatever an output does to the page, the run has a verdict
        run.html.unlink(missing_ok=True)
        reason = f"its page could not be made: {type(error).__name__}: {error}"
        run = replace(run, verdict=Verdict.failed, reason=reason)
        stamp(notebook, run)
        save_notebook(notebook, run.executed)
    made = files_made(folders, before)
    leaks = {name: hit for name in made if (hit := find_leak_in_file(found(name, folders[0])))}
    if leak is None and not leaks:
        return replace(run, made=made)
    return _withhold(notebook, replace(run, made=made), leak, leaks, folders[0])


def _remove(run: NotebookRun) -> None:
    for path in (run.executed, *run.html.parent.glob(f"{run.html.stem}*.html")):
        path.unlink(missing_ok=True)


def _withhold(
    notebook: NotebookNode, run: NotebookRun, leak: str | None, leaks: dict[str, str], run_dir: Path
) -> NotebookRun:
    _remove(run)
    for name in leaks:
        path = found(name, run_dir)
        if path.exists():
            kept = run_dir.parent / WITHHELD / run_dir.name / Path(name).name
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.replace(kept)
            kept.chmod(0o600)
    where = "the executed notebook" if leak else next(iter(leaks))
    reason = f"{leak or next(iter(leaks.values()))} is in {where}, so that neither the notebook nor its HTML was kept"
    data = [name for name in leaks if Path(name).suffix not in {".ipynb", ".html"}]
    if data:
        reason += f"; moved to {WITHHELD}: {', '.join(data)}"
    cells = [number for number, cell in enumerate(counted_cells(notebook), 1) if find_leak(text_of(cell))]
    left = {name: facts for name, facts in run.made.items() if found(name, run_dir).exists()}
    return replace(run, verdict=Verdict.failed, cell=cells[0] if cells else None, reason=reason, made=left, findings=())


def _move_floods(notebook: NotebookNode, run: NotebookRun) -> None:
    """Cuts what a cell printed in excess to its two ends; the whole goes into a file beside the notebook."""
    for number, cell in enumerate(counted_cells(notebook), 1):
        for output in cell.outputs:
            if output.output_type == "stream" and len(output.text) > LONGEST_STREAM:
                file = run.executed.with_name(f"{run.executed.stem}.In{number}.{output.name}.txt")
                write_whole(file, output.text.encode())
                half, left = LONGEST_STREAM // 2, len(output.text) - LONGEST_STREAM
                cut = f"\n... {left:,} more characters are in {file.name} ...\n"
                output.text = output.text[:half] + cut + output.text[-half:]


def findings_of(notebook: NotebookNode) -> tuple[str, ...]:
    """The bullets that a notebook's last code cell displays: its findings."""
    cells = counted_cells(notebook)
    for output in cells[-1].outputs if cells else ():
        text = output.get("data", {}).get("text/markdown", "")
        bullets = re.findall(r"^[*-] (.+(?:\n  .+)*)", text, re.MULTILINE)
        if bullets:
            return tuple(" ".join(bullet.split()) for bullet in bullets)
    return ()
