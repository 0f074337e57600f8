"""What the run of a notebook rests on and what it made: a run that is resumed leaves out what would not change."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from kimi_helpers import workspace
from kimi_helpers.rank_files import RANK_FILE, kimi_ranks
from kimi_helpers.run_record import MANIFEST, NotebookRun, environment, file_sha256

OUT = "out"  # the parameter that names the folder a notebook writes to
FROM_ROOT = "//"  # begins a path that is told from the workspace's root


def input_digests(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameter -> SHA-256 of the file or folder that it names; those that name none are left out."""
    digests = {}
    for name, value in parameters.items():
        values = value if isinstance(value, list) else [value]
        paths = [workspace.from_root(item) for item in values if isinstance(item, str) and item.strip("./")]
        known = [_digest(path) for path in paths if name != OUT and _exists(path)]
        if known:
            digests[name] = known[0] if len(known) == 1 else _together(known)
    return digests


def vocabulary_digest(parameters: Mapping[str, Any]) -> str | None:
    """SHA-256 of the rank file that the notebook reads: Kimi's own unless its `tokenizer` names a folder."""
    named = parameters.get("tokenizer")
    if not named:
        return kimi_ranks().sha256
    path = workspace.from_root(str(named)) / RANK_FILE
    return file_sha256(path) if path.is_file() else None


@cache
def code_digest() -> str:
    """SHA-256 of the package and of the data that it reads by itself, as they were when this process asked first."""
    package = Path(__file__).resolve().parent
    files = sorted(path for path in package.rglob("*") if path.suffix in {".py", ".j2", ".css", ".json"})
    files += sorted(path for path in workspace.DATA.rglob("*") if path.is_file() and "cache" not in path.parts)
    return _together([f"{path.name} {file_sha256(path)}" for path in files])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a text too long for a name, or with a null in it
        return False


def _digest(path: Path) -> str:
    if path.is_file():
        return file_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return _together([f"{file.relative_to(path).as_posix()} {file_sha256(file)}" for file in files])


def _together(parts: Sequence[str]) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()


Stamps = dict[Path, tuple[int, int]]


def file_stamps(folders: Sequence[Path]) -> Stamps:
    """File -> size and time of its last change, of all files in the folders but a run's own record."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in _files(folders)}


def files_made(folders: Sequence[Path], before: Stamps) -> dict[str, dict[str, Any]]:
    """Path -> size and SHA-256 of each file that is new or changed since; within the first folder relative to it."""
    return {
        named(path, folders[0]): {"bytes": stamp[0], "sha256": file_sha256(path)}
        for path, stamp in file_stamps(folders).items()
        if before.get(path) != stamp
    }


def named(path: Path, run_dir: Path) -> str:
    """The path as a run's record has it: from the run's folder, else from the workspace's root, else whole."""
    if path.is_relative_to(run_dir):
        return path.relative_to(run_dir).as_posix()
    return (
        f"{FROM_ROOT}{path.relative_to(workspace.ROOT).as_posix()}"
        if path.is_relative_to(workspace.ROOT)
        else str(path)
    )


def found(name: str, run_dir: Path) -> Path:
    """The inverse of `named`."""
    if name.startswith(FROM_ROOT):
        return workspace.ROOT / name.removeprefix(FROM_ROOT)
    return run_dir / name


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in dict.fromkeys(folders):
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file() and not path.is_symlink() and path.name != MANIFEST and not path.name.startswith("."):
                yield path


def is_unchanged(record: Mapping[str, Any], now: Mapping[str, Any], packages: Any, run_dir: Path) -> bool:
    """Whether a notebook that is recorded as succeeded would do the same again, and all that it made is still there.

    Args:
        record: of the earlier run, as in its `run.json`.
        now: what the record of a new run would begin with: source, code, parameters, inputs, vocabulary.
        packages: the environment that the earlier run had.
        run_dir: where what it made lies.
    """
    if record.get("verdict") != "succeeded" or any(record.get(name) != value for name, value in now.items()):
        return False
    made = record.get("made", {})
    return (
        packages == environment()
        and bool(made)
        and all(_is_intact(found(name, run_dir), facts["sha256"]) for name, facts in made.items())
    )


def _is_intact(path: Path, digest: str) -> bool:
    return path.is_file() and file_sha256(path) == digest


def as_recorded(record: Mapping[str, Any], run_dir: Path) -> NotebookRun:
    """The run of an earlier record, marked as left out this time."""
    executed = run_dir / record["notebook"]
    return NotebookRun.of_record(record, executed, executed.with_suffix(".html"))
