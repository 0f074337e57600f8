"""Watches a kernel from a thread of its own: how much memory it takes, and when its time is over.

papermill bounds a cell, never a run, and says of a killed kernel nothing but that it died.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from kimi_helpers.kernels import PrivateKernel, kill_group

EVERY = 0.25  # seconds between two looks
GRACE = 10.0  # seconds that the run may take to notice that its kernel is gone


@dataclass
class KernelWatch:
    """What was seen of a kernel and its children.

    Attributes:
        peak_bytes: most resident memory at once; None before the first look.
        last_bytes: resident memory at the last look.
        free_bytes: memory that the machine had left at the last look.
        is_overdue: the run's time was over, and the kernel was killed.
    """

    peak_bytes: int | None = None
    last_bytes: int | None = None
    free_bytes: int | None = None
    is_overdue: bool = False
    stop: threading.Event = field(default_factory=threading.Event, repr=False)

    def look(self, pid: int) -> None:
        """Add up the memory of the process and its children."""
        with suppress(psutil.Error):
            kernel = psutil.Process(pid)
            resident = 0
            for process in (kernel, *kernel.children(recursive=True)):
                with suppress(psutil.Error):
                    resident += process.memory_info().rss
            if resident:
                self.last_bytes = resident
                self.peak_bytes = max(self.peak_bytes or 0, resident)
                self.free_bytes = psutil.virtual_memory().available

    def memory_at_death(self) -> str:
        """The last that was seen, in words; empty where nothing was."""
        if self.last_bytes is None or self.free_bytes is None:
            return ""
        return (
            f"it held {_gibibytes(self.last_bytes)} when last seen (peak {_gibibytes(self.peak_bytes or 0)}), "
            f"and the machine had {_gibibytes(self.free_bytes)} left"
        )


def _gibibytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"


@contextmanager
def watched(kernel: PrivateKernel, seconds: float | None, watch: KernelWatch) -> Iterator[None]:
    """Fills `watch` until the block is left; after `seconds` the kernel is killed, and the block ends by its death.

    A block in the main thread that does not end by that gets a KeyboardInterrupt.
    """
    thread = threading.Thread(target=_watch, args=(watch, kernel, seconds, threading.get_ident()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop.set()
        thread.join()


def _watch(watch: KernelWatch, kernel: PrivateKernel, seconds: float | None, caller: int) -> None:
    begun = time.monotonic()
    while not watch.stop.wait(EVERY):
        if kernel.pid:
            watch.look(kernel.pid)
        if seconds is not None and kernel.group and time.monotonic() - begun > seconds:
            watch.is_overdue = True
            kill_group(kernel.group)
            if not watch.stop.wait(GRACE) and caller == threading.main_thread().ident:
                os.kill(os.getpid(), signal.SIGINT)  # the run hangs although its kernel is gone
            return
