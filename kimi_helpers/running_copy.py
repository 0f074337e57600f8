"""What a run has done so far: in memory, and on disk as well as the disk allows.

papermill writes its output in place, so that a full disk or a kill in the middle leaves half a notebook. Here each save
is whole, and one that fails costs nothing: the run goes on, and its end decides.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from papermill.iorw import papermill_io

from kimi_helpers.workspace import write_whole

SCHEME = "kimi-run://"


class _RunningCopies:
    """The saves of the runs of this process, as papermill's handler of one kind of address."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.files: dict[str, Path] = {}

    def read(self, address: str) -> str:
        return self.texts[address]

    def write(self, text: str, address: str) -> None:
        self.texts[address] = text
        with suppress(OSError):
            write_whole(self.files[address], text.encode())

    def pretty_path(self, address: str) -> str:
        return address


_COPIES = _RunningCopies()
papermill_io.register(SCHEME, _COPIES)


@contextmanager
def running_copy(text: str, file: Path) -> Iterator[str]:
    """The address at which papermill finds the notebook's text, and saves it; `file` has it while it runs."""
    address = f"{SCHEME}{len(_COPIES.texts)}-{id(file)}.ipynb"
    _COPIES.files[address] = file
    _COPIES.write(text, address)
    try:
        yield address
    finally:
        del _COPIES.texts[address], _COPIES.files[address]
        with suppress(OSError):
            file.unlink(missing_ok=True)


def text_so_far(address: str) -> str:
    """What was last saved at the address."""
    return _COPIES.read(address)
