"""Headless runs of notebooks, over papermill, and their verdict.

papermill executes; what it does not do is done here: parameters are checked before anything runs, the kernel is this
interpreter's and never outlives the run, the verdict is written where a reader looks, and a secret is not kept.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import papermill
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from kimi_helpers.kernels import KERNEL, private_kernel, require_kernel
from kimi_helpers.leaks import find_leak
from kimi_helpers.notebook_files import (
    NotebookError,
    code_cell,
    counted_cells,
    has_tag,
    load_notebook,
    save_notebook,
    text_of,
)
from kimi_helpers.notebook_parameters import (
    PARAMETERS_TAG,
    Parameter,
    ParameterError,
    check_parameters,
    read_parameters,
)
from kimi_helpers.notebook_verdicts import BANNER_TAG, judge, stamp
from kimi_helpers.rendering import render_html
from kimi_helpers.run_record import NotebookRun, Verdict, file_sha256, new_run_dir, write_manifest

__all__ = [
    "NotebookError",
    "NotebookRun",
    "Parameter",
    "ParameterError",
    "Verdict",
    "check_parameters",
    "new_run_dir",
    "plan_parameters",
    "read_parameters",
    "render_html",
    "run_notebook",
    "run_pipeline",
    "write_manifest",
]

INJECTED_TAG = "injected-parameters"
REASON_CHARS = 300


def run_pipeline(
    notebooks: Sequence[Path],
    parameters: Mapping[str, Any],
    run_dir: Path,
    *,
    cell_timeout: int | None = None,
    progress: bool = False,
) -> list[NotebookRun]:
    """Runs the notebooks in order, up to the first that does not succeed, and keeps `run.json` in `run_dir`.

    Args:
        notebooks: files with distinct names.
        parameters: name -> value; each notebook gets those that it declares.
        run_dir: folder for the executed notebooks, their HTML and the manifest.
        cell_timeout: seconds that one cell may take; None for no limit.
        progress: show a bar of cells on standard error.

    Raises:
        NotebookError: a notebook cannot be run, or its output is there already. Nothing has run then.
        ParameterError: a parameter that no notebook declares, or a value that does not fit. Nothing has run then.
    """
    shares = plan_parameters(notebooks, parameters)
    if len({notebook.name for notebook in notebooks}) < len(notebooks):
        raise NotebookError("two notebooks have the same file name; run them in runs of their own")
    for notebook in notebooks:
        _require_free(run_dir / notebook.name)
    require_kernel()
    run_dir.mkdir(parents=True, exist_ok=True)
    runs: list[NotebookRun] = []
    write_manifest(run_dir, notebooks, runs)
    for notebook, share in zip(notebooks, shares, strict=True):
        runs.append(run_notebook(notebook, share, run_dir, cell_timeout=cell_timeout, progress=progress))
        write_manifest(run_dir, notebooks, runs)
        if runs[-1].verdict is not Verdict.succeeded:
            break
    return runs


def plan_parameters(notebooks: Sequence[Path], parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each notebook would be given: of the parameters, those that it declares, as its types.

    Raises:
        NotebookError: a notebook cannot be read.
        ParameterError: a parameter that no notebook declares, or a value that does not fit.
    """
    declared = [read_parameters(notebook) for notebook in notebooks]
    everywhere = {name: parameter for names in declared for name, parameter in names.items()}
    check_parameters(everywhere, {name: value for name, value in parameters.items() if name not in everywhere})
    return [
        check_parameters(names, {name: value for name, value in parameters.items() if name in names})
        for names in declared
    ]


def run_notebook(
    notebook: Path,
    parameters: Mapping[str, Any],
    run_dir: Path,
    *,
    cell_timeout: int | None = None,
    progress: bool = False,
) -> NotebookRun:
    """Runs one notebook in a kernel of its own, with the notebook's folder as its working directory.

    Writes `run_dir/<name>.ipynb` and `.html`, each whole or not at all; while it runs, what is done so far is in
    `run_dir/.<name>.running.ipynb`. Whatever the notebook does, a verdict is returned: success needs every code cell to
    have run without an error.

    Raises:
        NotebookError: the notebook cannot be run, or its output is there already. Nothing has run then.
        ParameterError: a name that it does not declare, or a value that does not fit. Nothing has run then.
    """
    declared = read_parameters(notebook)
    given = check_parameters(declared, parameters)
    executed = run_dir / notebook.name
    _require_free(executed)
    require_kernel()
    run_dir.mkdir(parents=True, exist_ok=True)
    running = run_dir / f".{notebook.stem}.running.ipynb"
    source_sha256 = file_sha256(notebook)
    save_notebook(_with_parameters(load_notebook(notebook), given), running)

    started = datetime.now(UTC)
    cut_short = _execute(notebook, running, cell_timeout, progress)
    finished = datetime.now(UTC)

    result = load_notebook(running)
    verdict, cell, reason = judge(result, cut_short)
    run = NotebookRun(
        notebook=notebook.name,
        source_sha256=source_sha256,
        verdict=verdict,
        cell=cell,
        reason=" ".join(reason.split())[:REASON_CHARS],
        parameters={name: parameter.default for name, parameter in declared.items()} | given,
        started=started.isoformat(timespec="seconds"),
        finished=finished.isoformat(timespec="seconds"),
        seconds=round((finished - started).total_seconds(), 3),
        executed=executed,
        html=executed.with_suffix(".html"),
    )
    published = _publish(result, run)
    running.unlink()
    return published


def _require_free(executed: Path) -> None:
    if executed.exists():
        raise NotebookError(f"{executed} exists and would be overwritten; run into a new folder")


def _with_parameters(notebook: NotebookNode, given: Mapping[str, Any]) -> NotebookNode:
    """The notebook to execute. papermill would inject text as `\\u4f60`; Python's repr stays readable."""
    notebook.cells = [cell for cell in notebook.cells if not has_tag(cell, INJECTED_TAG, BANNER_TAG)]
    notebook.metadata["kernelspec"] = {"name": KERNEL, "display_name": "Python 3", "language": "python"}
    notebook.metadata["papermill"] = {"parameters": dict(given)}
    if given:
        injected = code_cell(
            "\n".join(["# Parameters", *(f"{name} = {value!r}" for name, value in given.items())]), INJECTED_TAG
        )
        tagged = [has_tag(cell, PARAMETERS_TAG) for cell in notebook.cells]
        notebook.cells.insert(tagged.index(True) + 1, injected)
    return notebook


def _execute(notebook: Path, running: Path, cell_timeout: int | None, progress: bool) -> BaseException | None:
    """Executes the copy in its place, and returns what cut it short.

    `resources` sets the kernel's working directory; papermill's own `cwd` would change that of this process.
    """
    path = str(running.resolve()).replace("{", "{{").replace("}", "}}")  # papermill formats paths
    try:
        with private_kernel(PapermillExecutionError) as kernel:
            papermill.execute_notebook(
                path,
                path,
                kernel_name=KERNEL,
                progress_bar={"desc": notebook.name, "mininterval": 1.0} if progress else False,
                execution_timeout=cell_timeout,
                km=kernel,
                resources={"metadata": {"path": str(notebook.resolve().parent)}},
                coalesce_streams=True,
                store_widget_state=False,
            )
    except PapermillExecutionError:
        return None  # the cell holds the error
    except (Exception, KeyboardInterrupt) as error:  # whatever ends a run, the run has a verdict
        return error
    return None


def _publish(notebook: NotebookNode, run: NotebookRun) -> NotebookRun:
    """Writes the executed notebook and its HTML, unless there is a secret in them."""
    stamp(notebook, run)
    leak = find_leak(text_of(notebook))
    if leak is None:
        save_notebook(notebook, run.executed)
        render_html(run.executed, run.html)
        leak = find_leak(html.unescape(run.html.read_text("utf-8")))
    if leak is None:
        return run
    run.executed.unlink(missing_ok=True)
    run.html.unlink(missing_ok=True)
    leaky = [number for number, cell in enumerate(counted_cells(notebook), 1) if find_leak(text_of(cell))]
    reason = f"{leak} is in the executed notebook, so that neither it nor its HTML was kept"
    return replace(run, verdict=Verdict.failed, cell=leaky[0] if leaky else None, reason=reason)
