"""Where the workspace keeps its own small data and what it may cache, and how a file is written."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"
OUTPUTS = ROOT / "outputs"


def cache_folder() -> Path:
    """The user's cache folder of this package: everything in it can be made again."""
    return platformdirs.user_cache_path("kimi-helpers")


def from_root(path: str) -> Path:
    """A path of a notebook's parameter: relative ones are taken from the workspace's root, from wherever it runs."""
    return ROOT / Path(path).expanduser()


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` beside `path`, then rename: a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(beside).chmod(0o644)  # mkstemp's own is for its maker alone
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; once the block has ended it takes its place, or goes away on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=path.name) as folder:
        beside = Path(folder, path.name)
        yield beside
        beside.replace(path)


def printable(text: str) -> str:
    """Untrusted text for a terminal: what does not print is written as an escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
