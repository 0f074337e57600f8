"""One plain progress bar, for a terminal, a notebook and a log."""

import sys
from typing import Any, TextIO

from tqdm import tqdm

SECONDS_IN_A_LOG = 30.0
SECONDS_ON_A_SCREEN = 0.2


class _Lines:
    """A log, in which a bar that is drawn again is a new line."""

    def __init__(self, log: TextIO) -> None:
        self._log = log

    def write(self, text: str) -> None:
        if line := text.strip("\r\n"):
            self._log.write(f"{line}\n")

    def flush(self) -> None:
        self._log.flush()


def open_bar(title: str, total: int | None) -> "tqdm[Any]":
    """A bar of replies on the standard error stream; in a file or a pipe a line every half minute instead."""
    is_screen = sys.stderr.isatty() or "ipykernel" in type(sys.stderr).__module__
    return tqdm(
        desc=title,
        total=total,
        unit="reply",
        file=sys.stderr if is_screen else _Lines(sys.stderr),
        mininterval=SECONDS_ON_A_SCREEN if is_screen else SECONDS_IN_A_LOG,
        ncols=None if is_screen else 120,
        dynamic_ncols=is_screen,
    )
