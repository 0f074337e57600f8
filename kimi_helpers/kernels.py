"""The kernel of a headless run: this interpreter, on private sockets, and gone when the run is over."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync

from kimi_helpers.notebook_files import NotebookError

KERNEL = "python3"
LONGEST_FOLDER = 60  # the path of a socket may have about 100 bytes


def require_kernel() -> None:
    """Checks that the kernel named `python3` is this interpreter: another one would run other code.

    Raises:
        NotebookError: it is missing, or belongs to another environment.
    """
    install = f"run `{Path(sys.executable).name} -m ipykernel install --sys-prefix --name {KERNEL}` in this environment"
    try:
        command = KernelSpecManager().get_kernel_spec(KERNEL).argv[0]
    except NoSuchKernel as error:
        raise NotebookError(f"there is no Jupyter kernel named {KERNEL}; {install}") from error
    # jupyter_client runs a bare `python` as this interpreter.
    if os.sep in command and Path(command).parent.resolve() != Path(sys.executable).parent.resolve():
        raise NotebookError(f"the Jupyter kernel {KERNEL} is another interpreter ({command}); {install}")


class PrivateKernel(AsyncKernelManager):
    """A kernel whose client can be closed: nbclient leaves a kernel that it was handed to its owner, client and all."""

    handed_out: Any = None

    @property
    def pid(self) -> int | None:
        """The process, once it is started."""
        return getattr(self.provisioner, "pid", None)

    @property
    def group(self) -> int | None:
        """The process group of the kernel and of all that it starts."""
        return getattr(self.provisioner, "pgid", None)

    def client(self, **options: Any) -> Any:
        self.handed_out = super().client(**options)
        return self.handed_out


@contextmanager
def private_kernel(*unharmed: type[BaseException]) -> Iterator[PrivateKernel]:
    """A kernel that is not started yet, and is stopped at the end with all that it started.

    Its sockets lie in a folder of its own: no port that a parallel run could take, nothing another user could read.

    Args:
        unharmed: exceptions after which the kernel is idle. It then may tidy up, as after success; after any other it
            is killed.
    """
    parent = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="kimi-", dir="/tmp" if len(parent) > LONGEST_FOLDER else parent) as folder:
        kernel = PrivateKernel(
            kernel_name=KERNEL, transport="ipc", ip=f"{folder}/socket", connection_file=f"{folder}/kernel.json"
        )
        idle = False
        try:
            yield kernel
            idle = True
        except unharmed:
            idle = True
            raise
        finally:
            run_sync(_stop)(kernel, idle)


async def _stop(kernel: PrivateKernel, idle: bool) -> None:
    await _cancel_leftovers()
    group = kernel.group
    try:
        if kernel.handed_out:
            kernel.handed_out.stop_channels()
        if not idle:
            kill_group(group)
        if await kernel.is_alive():
            await kernel.shutdown_kernel(now=not idle)
        else:
            await kernel.cleanup_resources()
    finally:
        kill_group(group)  # what the kernel started, too


def kill_group(group: int | None) -> None:
    """End every process of the group; none where there is none."""
    if group:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


async def _cancel_leftovers() -> None:
    """Ends the tasks that nbclient leaves waiting for the kernel; the event loop would complain of them later."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
