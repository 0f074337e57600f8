"""Ends of a run that no small notebook brings about."""

# mypy: disable-error-code="no-untyped-call"

import nbformat
import pytest
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from kimi_helpers.notebook_execution import Execution, Limits, RunOverdueError
from kimi_helpers.notebook_files import code_cell
from kimi_helpers.notebook_verdicts import judge
from kimi_helpers.run_record import Verdict


def begun(count: int) -> nbformat.NotebookNode:
    """A notebook of three code cells, of which papermill began some."""
    notebook: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=[code_cell(f"IOPub = {place}", "a") for place in range(3)]
    )
    for place, cell in enumerate(notebook.cells):
        cell.metadata["papermill"] = {"start_time": "2026-11-29" if place < count else None, "status": "completed"}
    return notebook


def timeout(message: str) -> CellTimeoutError:
    return CellTimeoutError.error_from_timeout_and_cell(message, 4, begun(1).cells[0])


@pytest.mark.parametrize(
    ("cut_short", "count", "verdict", "cell", "reason"),
    [
        (timeout("Cell execution timed out"), 2, Verdict.timeout, 2, "after 4 seconds"),
        (timeout("Timeout waiting for IOPub output"), 1, Verdict.failed, 1, "output of the cell was lost"),
        (DeadKernelError("Kernel died"), 3, Verdict.kernel_died, 3, "died in the cell"),
        (RuntimeError("Kernel died before replying to kernel_info"), 0, Verdict.kernel_died, None, "while it started"),
        (RuntimeError("Kernel didn't respond in 60 seconds"), 0, Verdict.failed, None, "didn't respond"),
        (RunOverdueError(), 2, Verdict.timeout, 2, "whole run took longer than its 5 seconds"),
        (KeyboardInterrupt(), 0, Verdict.interrupted, None, "Ctrl-C"),
    ],
)
def test_each_end_has_its_verdict(
    cut_short: BaseException, count: int, verdict: Verdict, cell: int | None, reason: str
) -> None:
    judged = judge(Execution(begun(count), cut_short), Limits(run=5))
    assert judged[:2] == (verdict, cell)
    assert reason in judged[2]


def test_a_cell_that_failed_without_an_error_output_is_a_failure() -> None:
    notebook = begun(3)
    for count, cell in enumerate(notebook.cells, 1):
        cell.execution_count = count
    assert judge(Execution(notebook, None), Limits()) == (Verdict.succeeded, None, "")
    notebook.cells[1].metadata.papermill["exception"] = True
    assert judge(Execution(notebook, None), Limits()) == (Verdict.failed, 2, "the cell did not run to its end")
