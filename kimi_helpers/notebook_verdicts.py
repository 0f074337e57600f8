"""How a run ended, told from the executed notebook, and written into it.

papermill saves a notebook that timed out, or whose kernel died, with every cell `completed` and no exception.
"""

import html
from collections.abc import Sequence

import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from papermill.execute import remove_error_markers

from kimi_helpers.notebook_execution import Execution, Limits, RunOverdueError
from kimi_helpers.notebook_files import counted_cells, markdown_cell
from kimi_helpers.run_record import NotebookRun, Verdict

BANNER_TAG = "kimi-run-banner"
WIDGET = "application/vnd.jupyter.widget-view+json"


def judge(execution: Execution, limits: Limits) -> tuple[Verdict, int | None, str]:
    """Verdict, n of `In [n]` where the run stopped, and the reason."""
    cells = counted_cells(execution.notebook)
    if execution.cut_short is None:
        return _judge_cells(cells)
    begun = [number for number, cell in enumerate(cells, 1) if cell.metadata.get("papermill", {}).get("start_time")]
    verdict, reason = _judge_end(execution.cut_short, limits)
    if verdict is Verdict.kernel_died and execution.memory:
        reason = f"{reason}; {execution.memory}"
    return verdict, begun[-1] if begun else None, reason


def _judge_cells(cells: Sequence[NotebookNode]) -> tuple[Verdict, int | None, str]:
    for number, cell in enumerate(cells, 1):
        errors = [output for output in cell.outputs if output.output_type == "error"]
        if errors:
            return Verdict.failed, number, f"{errors[0].ename}: {errors[0].evalue}"
        if cell.execution_count is None or cell.metadata.get("papermill", {}).get("exception"):
            return Verdict.failed, number, "the cell did not run to its end"
    return Verdict.succeeded, None, ""


def _judge_end(cut_short: BaseException, limits: Limits) -> tuple[Verdict, str]:
    message = str(cut_short)
    lines = message.split("\n")
    match cut_short:
        case RunOverdueError():
            end = Verdict.timeout, f"the whole run took longer than its {limits.run:g} seconds"
        case KeyboardInterrupt():
            end = Verdict.interrupted, "interrupted from outside (Ctrl-C, or a request to end)"
        case CellTimeoutError() if "IOPub" in lines[1]:
            end = Verdict.failed, "some output of the cell was lost on its way from the kernel"
        case CellTimeoutError():
            end = Verdict.timeout, lines[0]  # says after how many seconds
        case DeadKernelError():
            end = Verdict.kernel_died, "the kernel died in the cell; often the machine had no memory left"
        case RuntimeError() if message.startswith("Kernel died"):
            end = Verdict.kernel_died, "the kernel died while it started"
        case _:
            end = Verdict.failed, f"{type(cut_short).__name__}: {message}"
    return end


def stamp(notebook: NotebookNode, run: NotebookRun) -> None:
    """Puts the verdict into the notebook: `metadata.kimi_run`, and a banner at the top unless it succeeded.

    Takes out what papermill says wrongly (cells that never began are pending, not completed) and paths of this machine.
    """
    remove_error_markers(notebook)
    _remove_widgets(notebook)
    notebook.metadata["kimi_run"] = nbformat.from_dict(run.record())  # type: ignore[no-untyped-call]
    notebook.metadata.setdefault("papermill", {}).update(
        input_path=run.notebook, output_path=run.executed.name, exception=run.verdict is not Verdict.succeeded
    )
    for cell in notebook.cells:
        state = cell.metadata.get("papermill", {})
        if state and state["start_time"] is None:
            state["status"] = "pending"
    if run.cell:
        counted_cells(notebook)[run.cell - 1].metadata.setdefault("papermill", {})["status"] = "failed"
    if run.verdict is not Verdict.succeeded:
        notebook.cells.insert(0, _banner(notebook, run))


def _remove_widgets(notebook: NotebookNode) -> None:
    """A widget needs the kernel that made it: a saved one is blank, and GitHub refuses the whole notebook for it."""
    notebook.metadata.pop("widgets", None)
    for cell in counted_cells(notebook):
        for output in cell.outputs:
            output.get("data", {}).pop(WIDGET, None)
        cell.outputs = [output for output in cell.outputs if output.get("data", True)]


def _banner(notebook: NotebookNode, run: NotebookRun) -> NotebookNode:
    place = ""
    if run.cell:
        stopped = counted_cells(notebook)[run.cell - 1]
        place = f' in <a href="#cell-id={stopped.id}">In [{run.cell}]</a>'
    ending = run.verdict.value.replace("_", " ")
    return markdown_cell(
        f'<div class="{BANNER_TAG}" role="alert"><strong>This run did not succeed: {ending}</strong>{place}. '
        f"{html.escape(run.reason)}</div>",
        BANNER_TAG,
    )
