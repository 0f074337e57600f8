"""One notebook through papermill: in a kernel of its own, within its time, saved whole."""

from dataclasses import dataclass
from pathlib import Path

import nbformat
import papermill
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from kimi_helpers.kernel_watch import KernelWatch, watched
from kimi_helpers.kernels import KERNEL, private_kernel
from kimi_helpers.running_copy import running_copy, text_so_far


class RunOverdueError(TimeoutError):
    """The time of the whole run was over."""


@dataclass(frozen=True)
class Limits:
    """Seconds that a run may take; None for no limit.

    Attributes:
        cell: one cell.
        run: all notebooks of the run together.
    """

    cell: int | None = None
    run: float | None = None


@dataclass(frozen=True)
class Execution:
    """What an execution left.

    Attributes:
        notebook: as papermill last saved it.
        cut_short: what ended it; None where all cells ran, or one failed with an error that the notebook holds.
        peak_bytes: most memory that the kernel and its children held at once; None where it was not seen.
        memory: the last that was seen of the kernel's memory, in words.
    """

    notebook: NotebookNode
    cut_short: BaseException | None
    peak_bytes: int | None = None
    memory: str = ""


def execute(notebook: NotebookNode, source: Path, running: Path, limits: Limits, progress: bool) -> Execution:
    """Executes the notebook, with its source's folder as the working directory.

    Args:
        notebook: with its parameters.
        source: the file that it was read from.
        running: has what is done so far while it runs, and is gone after.
        limits: `run` is what is left of the run's time.
        progress: show a bar of cells on standard error.
    """
    with running_copy(nbformat.writes(notebook), running) as address:  # type: ignore[no-untyped-call]
        cut_short: BaseException | None = None
        watch = KernelWatch()
        try:
            with private_kernel(PapermillExecutionError) as kernel, watched(kernel, limits.run, watch):
                # `resources` sets the kernel's working directory; papermill's own `cwd` would change this process's.
                papermill.execute_notebook(
                    address,
                    address,
                    kernel_name=KERNEL,
                    progress_bar={"desc": source.name, "mininterval": 1.0} if progress else False,
                    execution_timeout=limits.cell,
                    km=kernel,
                    resources={"metadata": {"path": str(source.resolve().parent)}},
                    coalesce_streams=True,
                    store_widget_state=False,
                )
        except PapermillExecutionError:
            pass  # the cell holds the error
        except (Exception, KeyboardInterrupt) as error:  # whatever ends a run, the run has a verdict
            cut_short = error
        if watch.is_overdue and cut_short is not None:
            cut_short = RunOverdueError()
        saved: NotebookNode = nbformat.reads(text_so_far(address), as_version=4)  # type: ignore[no-untyped-call]
    return Execution(saved, cut_short, watch.peak_bytes, watch.memory_at_death())
