"""What a run leaves behind: its folder, the verdict of each notebook, and `run.json`.

papermill records a cell that timed out, or whose kernel died, as completed and raises nothing into the saved notebook.
So the verdict is kept here, and is the only one to trust.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil

from kimi_helpers.workspace import write_whole

MANIFEST = "run.json"


class Verdict(StrEnum):
    """How the run of a notebook ended."""

    succeeded = "succeeded"
    failed = "failed"
    timeout = "timeout"
    kernel_died = "kernel_died"
    interrupted = "interrupted"

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ran the notebook: 0, 130 after Ctrl-C, otherwise 1."""
        return {Verdict.succeeded: 0, Verdict.interrupted: 130}.get(self, 1)


@dataclass(frozen=True)
class NotebookRun:
    """The run of one notebook.

    Attributes:
        notebook: file name of the notebook.
        source_sha256: digest of the notebook's file as it was run.
        verdict: how it ended.
        cell: n of `In [n]` in the executed notebook where it stopped; None where no cell had started or all succeeded.
        reason: one line for a reader; empty after success.
        parameters: name -> value, defaults included.
        started, finished: ISO 8601, UTC.
        seconds: wall time of the execution.
        executed, html: the two files written. Both are absent where a secret was found in one of them.
        code_sha256: digest of the package and its data.
        inputs: parameter -> digest of the file or folder that it names.
        vocabulary_sha256: digest of the rank file; None where there is none at the place that is named.
        peak_bytes: most memory that the kernel held at once; None where it was not seen.
        findings: the lines under the notebook's last heading, as the run filled them in.
        made: file that the run made or changed -> its size and SHA-256; from the run's folder.
        is_kept: the run is of an earlier time, and was not done again since nothing it rests on has changed.
    """

    notebook: str
    source_sha256: str
    verdict: Verdict
    cell: int | None
    reason: str
    parameters: dict[str, Any]
    started: str
    finished: str
    seconds: float
    executed: Path
    html: Path
    code_sha256: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    vocabulary_sha256: str | None = None
    peak_bytes: int | None = None
    findings: tuple[str, ...] = ()
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_kept: bool = False

    @classmethod
    def of_record(cls, record: Mapping[str, Any], executed: Path, html: Path) -> "NotebookRun":
        """The run that `record` tells of, kept from then."""
        told = {name: value for name, value in record.items() if name in cls.__dataclass_fields__}
        told |= {"verdict": Verdict(record["verdict"]), "findings": tuple(record.get("findings", ()))}
        return cls(**told, executed=executed, html=html, is_kept=True)

    def record(self) -> dict[str, Any]:
        """The run as JSON values; its files bear the notebook's name."""
        return {
            "notebook": self.notebook,
            "source_sha256": self.source_sha256,
            "verdict": self.verdict.value,
            "cell": self.cell,
            "reason": self.reason,
            "parameters": self.parameters,
            "started": self.started,
            "finished": self.finished,
            "seconds": self.seconds,
            "code_sha256": self.code_sha256,
            "inputs": self.inputs,
            "vocabulary_sha256": self.vocabulary_sha256,
            "peak_bytes": self.peak_bytes,
            "findings": list(self.findings),
            "made": self.made,
        }


def slug(text: str) -> str:
    """The text as part of a file's name: a model's `author/name`, `{}` and blanks become dashes."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:60]


def new_run_dir(outputs: Path, label: str = "") -> Path:
    """A new folder `YYYYMMDD-HHMMSS[-label]` (UTC) in `outputs`; with `-2`, `-3` ... where another run has the name."""
    outputs.mkdir(parents=True, exist_ok=True)
    stamp = "-".join(filter(None, (datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), slug(label))))
    name, taken = stamp, 1
    while True:
        try:
            (outputs / name).mkdir()
        except FileExistsError:
            taken += 1
            name = f"{stamp}-{taken}"
        else:
            return outputs / name


def file_sha256(path: Path) -> str:
    """The SHA-256 of the file's bytes, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(run_dir: Path, notebooks: Sequence[Path], runs: Sequence[NotebookRun]) -> Path:
    """Writes `run.json`: what ran, with what, on what, and how it ended.

    Args:
        run_dir: folder of the run.
        notebooks: all that the run is to execute, in order.
        runs: those executed so far. The verdict of the whole is the last one's when nothing is left to run, and null
            while the run is under way: a run that was killed keeps that null.
    """
    over = len(runs) == len(notebooks) or any(run.verdict is not Verdict.succeeded for run in runs)
    waiting = [{"notebook": path.name, "verdict": None} for path in notebooks[len(runs) :]]
    manifest = {
        "verdict": runs[-1].verdict.value if over and runs else None,
        "started": runs[0].started if runs else None,
        "finished": runs[-1].finished if over and runs else None,
        "seconds": round(sum(run.seconds for run in runs), 3),
        "notebooks": [run.record() for run in runs] + waiting,
        "git": git_state(notebooks[0].resolve().parent) if notebooks else None,
        "host": host(),
        "environment": environment(),
        "artifacts": artifacts(run_dir) if over else {},
    }
    path = run_dir / MANIFEST
    write_whole(path, (json.dumps(manifest, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode())
    return path


def artifacts(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Relative path -> size and SHA-256 of every file in the folder but the manifest."""
    files = sorted(path for path in run_dir.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(run_dir).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in files
        if path != run_dir / MANIFEST
    }


def environment() -> dict[str, Any]:
    """Python, platform and every installed package; no host name, user name or path."""
    packages = {dist.name: dist.version for dist in distributions()}
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].casefold())),
    }


def host() -> dict[str, Any]:
    """What kind of machine this is; not which."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """The revision that the folder is at, and whether anything there is changed or untracked; None without git."""
    revision = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain")
    return None if revision is None or changes is None else {"revision": revision, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
