"""Headless runs of notebooks, over papermill, and their verdict.

papermill executes; what it does not do is done here: parameters are checked before anything runs, the kernel is this
interpreter's and never outlives the run, the verdict is written where a reader looks, and a secret is not kept.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from kimi_helpers.kernels import KERNEL, require_kernel
from kimi_helpers.notebook_execution import Limits, execute
from kimi_helpers.notebook_files import NotebookError, code_cell, has_tag, load_notebook
from kimi_helpers.notebook_parameters import (
    PARAMETERS_TAG,
    Parameter,
    ParameterError,
    check_parameters,
    read_parameters,
)
from kimi_helpers.notebook_verdicts import BANNER_TAG, judge
from kimi_helpers.rendering import render_html
from kimi_helpers.run_publishing import publish
from kimi_helpers.run_record import (
    MANIFEST,
    NotebookRun,
    Verdict,
    file_sha256,
    new_run_dir,
    write_manifest,
)
from kimi_helpers.run_stages import (
    OUT,
    as_recorded,
    code_digest,
    file_stamps,
    input_digests,
    is_unchanged,
    vocabulary_digest,
)
from kimi_helpers.workspace import from_root

__all__ = [
    "Limits",
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
NO_LIMITS = Limits()


def run_pipeline(
    notebooks: Sequence[Path],
    shares: Sequence[Mapping[str, Any]],
    run_dir: Path,
    *,
    limits: Limits = NO_LIMITS,
    progress: bool = False,
    resume: bool = False,
    report: Callable[[NotebookRun], None] = lambda _: None,
) -> list[NotebookRun]:
    """Runs the notebooks in order, up to the first that does not succeed, and keeps `run.json` in `run_dir`.

    Args:
        notebooks: files with distinct names.
        shares: for each, the parameters that it is given; see `plan_parameters`.
        run_dir: folder for the executed notebooks, their HTML and the manifest.
        limits: seconds that a cell, and that all of them together may take.
        progress: show a bar of cells on standard error.
        resume: `run_dir` may hold an earlier run of them; a notebook that succeeded there is left out as long as its
            source, the package, the environment, its parameters and inputs, and what it made have not changed.
        report: is told of each notebook when it is over.

    Raises:
        NotebookError: a notebook cannot be run, its output is there already, or another run writes into the folder.
            Nothing has run then.
        ParameterError: a parameter that no notebook declares, or a value that does not fit. Nothing has run then.
    """
    if len({notebook.name for notebook in notebooks}) < len(notebooks):
        raise NotebookError("two notebooks have the same file name; run them in runs of their own")
    given = [check_parameters(read_parameters(path), share) for path, share in zip(notebooks, shares, strict=True)]
    if not resume:
        for notebook in notebooks:
            _require_free(run_dir / notebook.name)
    require_kernel()
    with _claimed(run_dir):
        earlier = _recorded(run_dir) if resume else {}
        ends = None if limits.run is None else time.monotonic() + limits.run
        runs: list[NotebookRun] = []
        write_manifest(run_dir, notebooks, runs)
        for notebook, share in zip(notebooks, given, strict=True):
            left = None if ends is None else max(0.0, ends - time.monotonic())
            runs.append(_run(notebook, share, run_dir, limits, left, progress, earlier))
            write_manifest(run_dir, notebooks, runs)
            report(runs[-1])
            if runs[-1].verdict is not Verdict.succeeded:
                break
    return runs


def plan_parameters(
    notebooks: Sequence[Path], parameters: Mapping[str, Any], wiring: Sequence[Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """What each notebook would be given: of the parameters, those that it declares, as its types.

    Args:
        notebooks: files.
        parameters: name -> value.
        wiring: for each notebook, values that hold where nothing is given.

    Raises:
        NotebookError: a notebook cannot be read.
        ParameterError: a parameter that no notebook declares, or a value that does not fit.
    """
    declared = [read_parameters(notebook) for notebook in notebooks]
    everywhere = {name: parameter for names in declared for name, parameter in names.items()}
    check_parameters(everywhere, {name: value for name, value in parameters.items() if name not in everywhere})
    wired = wiring or [{}] * len(notebooks)
    return [
        check_parameters(names, {**own, **{name: value for name, value in parameters.items() if name in names}})
        for names, own in zip(declared, wired, strict=True)
    ]


def run_notebook(
    notebook: Path, parameters: Mapping[str, Any], run_dir: Path, *, limits: Limits = NO_LIMITS, progress: bool = False
) -> NotebookRun:
    """Runs one notebook in a kernel of its own, with the notebook's folder as its working directory.

    Writes `run_dir/<name>.ipynb` and `.html`, each whole or not at all; while it runs, what is done so far is in
    `run_dir/.<name>.running.ipynb`. Whatever the notebook does, a verdict is returned: success needs every code cell to
    have run without an error.

    Raises:
        NotebookError: the notebook cannot be run, or its output is there already. Nothing has run then.
        ParameterError: a name that it does not declare, or a value that does not fit. Nothing has run then.
    """
    given = check_parameters(read_parameters(notebook), parameters)
    _require_free(run_dir / notebook.name)
    require_kernel()
    with _claimed(run_dir):
        return _run(notebook, given, run_dir, limits, limits.run, progress, {})


def _run(
    notebook: Path,
    given: Mapping[str, Any],
    run_dir: Path,
    limits: Limits,
    left: float | None,
    progress: bool,
    earlier: Mapping[str, Any],
) -> NotebookRun:
    values = {name: parameter.default for name, parameter in read_parameters(notebook).items()} | dict(given)
    rests_on: dict[str, Any] = {
        "source_sha256": file_sha256(notebook),
        "code_sha256": code_digest(),
        "parameters": values,
        "inputs": input_digests(values),
        "vocabulary_sha256": vocabulary_digest(values),
    }
    record = earlier.get(notebook.name, {})
    if record and is_unchanged(record, rests_on, earlier[""], run_dir):
        return as_recorded(record, run_dir)

    folders = [run_dir, *([from_root(values[OUT])] if values.get(OUT) else [])]
    before = file_stamps(folders)
    started = datetime.now(UTC)
    execution = execute(
        _with_parameters(load_notebook(notebook), given),
        notebook,
        run_dir / f".{notebook.stem}.running.ipynb",
        replace(limits, run=left),
        progress,
    )
    finished = datetime.now(UTC)
    verdict, cell, reason = judge(execution, limits)
    run = NotebookRun(
        notebook=notebook.name,
        **rests_on,
        verdict=verdict,
        cell=cell,
        reason=" ".join(reason.split())[:REASON_CHARS],
        started=started.isoformat(timespec="seconds"),
        finished=finished.isoformat(timespec="seconds"),
        seconds=round((finished - started).total_seconds(), 3),
        executed=run_dir / notebook.name,
        html=(run_dir / notebook.name).with_suffix(".html"),
        peak_bytes=execution.peak_bytes,
    )
    return publish(execution.notebook, run, folders, before)


def _require_free(executed: Path) -> None:
    if executed.exists():
        raise NotebookError(f"{executed} exists and would be overwritten; run into a new folder")


@contextmanager
def _claimed(run_dir: Path) -> Iterator[None]:
    """The folder, for this run alone until it is over, however it ends.

    Raises:
        NotebookError: another run has it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise NotebookError(f"{run_dir} belongs to a run that is under way; run into a new folder") from error
    finally:
        os.close(folder)


def _recorded(run_dir: Path) -> dict[str, Any]:
    """Notebook -> record of the run that lies in the folder; its environment under the empty name."""
    try:
        manifest = json.loads((run_dir / MANIFEST).read_text("utf-8"))
        return {"": manifest["environment"]} | {entry["notebook"]: entry for entry in manifest["notebooks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookError(f"{run_dir} holds no run to go on with: there is no usable {MANIFEST} in it") from error


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
