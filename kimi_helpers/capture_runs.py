"""A capture of a whole training set: planned, estimated, resumed; a kill at any point loses nothing.

OUT/manifest.json          what is captured, of what, how; another run may only go on where all of it is the same
OUT/units/N.json           written last of a unit: its files with their sha256, and its rows
OUT/...                    the files of the format (state_files.py)
OUT/index.parquet          all rows: name, place, tokens, sha256 of ids and mask, file, start; written at the end
OUT/files.parquet          all files: path, bytes, sha256
"""

import fcntl
import importlib.metadata
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from kimi_helpers.capture_rows import UNIT_TOKENS, Plan, Unit, plan_capture, read_rows
from kimi_helpers.captures import Capture, CaptureError
from kimi_helpers.hidden_states import BATCH_TOKENS, CapturedRow, capture_states
from kimi_helpers.state_files import FORMATS, PART, sha256_of, write_rows
from kimi_helpers.target_models import Target, TargetFacts, load_target
from kimi_helpers.workspace import write_whole

VERSION = 1
SPARE_SHARE = 0.02  # of the estimate, that must stay free


@dataclass(frozen=True)
class CaptureSettings:
    """A capture as it is asked for; plain values, so that it travels to other machines.

    Attributes:
        rows: the training set in Parquet.
        out: the output's folder.
        facts: of the model.
        capture: which states.
        format: one of `state_files.FORMATS`.
        device: as `load_target`.
        compute: the dtype in which the model computes.
        batch_tokens: as `capture_states`.
        unit_tokens: as `plan_capture`.
        limit: only so many rows, the first ones.
        top: as `capture_states`; only for `shards`.
        threads: of torch, on a CPU: another number can give other bytes.
    """

    rows: Path
    out: Path
    facts: TargetFacts
    capture: Capture
    format: str = "shards"
    device: str = "cpu"
    compute: str = "bfloat16"
    batch_tokens: int = BATCH_TOKENS
    unit_tokens: int = UNIT_TOKENS
    limit: int | None = None
    top: int | None = None
    threads: int = 1


@dataclass(frozen=True)
class CaptureSummary:
    """What a run did.

    Attributes:
        plan: all that the output holds now.
        captured: units that this run captured; the others were there.
        bytes: of the states' files.
        estimated: bytes, as foretold.
    """

    plan: Plan
    captured: int
    bytes: int
    estimated: int


Perform = Callable[[CaptureSettings, list[Unit]], Iterable[int]]
"""Captures and writes units; gives the number of each as it is done."""


def estimated_bytes(plan: Plan, settings: CaptureSettings) -> int:
    """What the states' files will take, within a few bytes a row."""
    form = FORMATS[settings.format]
    scores = 0 if settings.top is None else 4 + 8 * settings.top
    token = settings.capture.token_bytes(settings.facts.hidden) + form.token_bytes + scores
    return plan.tokens * token + plan.rows * form.row_bytes + len(plan.units) * (0 if form.name else 500)


def make_capture(
    settings: CaptureSettings, perform: Perform, verify: bool = False, told: Callable[[str], None] = print
) -> CaptureSummary:
    """Capture what is not captured yet, and index the whole.

    Args:
        settings: what to capture.
        perform: `capture_locally`, or the same on a cluster.
        verify: hash every file that is there, and capture again what is not as its record says.
        told: takes a sentence before the work begins.

    Raises:
        CaptureError: rows, model, format or output do not go together; the disk is too small; a state is not finite.
        OSError: a file cannot be written. What is whole stays, and the same call goes on from there.
    """
    _check(settings)
    plan = plan_capture(settings.rows, settings.limit, settings.unit_tokens)
    _check_rows(plan, settings)
    settings.out.mkdir(parents=True, exist_ok=True)
    with _locked(settings.out):
        _claim(settings, plan)
        for part in settings.out.rglob(f"*{PART}"):
            part.unlink()
        todo = [unit for unit in plan.units if not _is_done(settings, unit, verify)]
        estimate = estimated_bytes(plan, settings)
        left = estimate * sum(unit.tokens for unit in todo) // plan.tokens
        told(
            f"{plan.rows:,} rows, {plan.tokens:,} tokens: about {estimate / 1e9:,.3f} GB in all,"
            f" {left / 1e9:,.3f} GB to come"
        )
        _check_space(settings.out, left)
        for _ in perform(settings, todo) if todo else ():
            pass
        records = [_record(settings.out, unit) for unit in plan.units]
        _write_index(settings.out, records)
    size = sum(file["bytes"] for record in records for file in record["files"])
    return CaptureSummary(plan, len(todo), size, estimate)


def capture_locally(settings: CaptureSettings, todo: list[Unit]) -> Iterator[int]:
    """Capture units in this process, one after the other."""
    do = unit_worker(settings)
    for unit in todo:
        do(unit)
        yield unit.number


def unit_worker(settings: CaptureSettings) -> Callable[[Unit], None]:
    """Load the model; what is returned captures, checks and writes one unit, record last."""
    torch.set_num_threads(settings.threads)
    target = load_target(settings.facts, settings.device, settings.compute)
    return lambda unit: _capture_unit(target, settings, unit)


def _capture_unit(target: Target, settings: CaptureSettings, unit: Unit) -> None:
    rows = list(read_rows(settings.rows, unit.start, unit.start + unit.rows))
    captured = capture_states(target, rows, settings.capture, settings.batch_tokens, settings.top)
    for each in captured:
        check_finite(each, settings.capture)
    record = write_rows(settings.out, settings.format, unit, captured)
    write_whole(_record_path(settings.out, unit), json.dumps(record, indent=1).encode())


def check_finite(each: CapturedRow, capture: Capture) -> None:
    """Refuse states that would poison a training.

    Raises:
        CaptureError: a state is NaN or infinite; the message names row, token and layer.
    """
    if bool(torch.isfinite(torch.stack(torch.aminmax(each.states))).all()):
        return
    token, state = (~each.states.isfinite()).any(-1).nonzero()[0].tolist()
    layer = f"layer {capture.layers[state]}" if state < len(capture.layers) else "the last state"
    raise CaptureError(
        f"row {each.row.index} ({each.row.row_id!r}), token {token}: {layer} is NaN or infinite; the row was not"
        " written. Compute in bfloat16 or float32 rather than float16, or leave the row out."
    )


def _check(settings: CaptureSettings) -> None:
    if settings.format not in FORMATS:
        raise CaptureError(f"there is no format {settings.format!r}; the formats are {', '.join(FORMATS)}.")
    norm = FORMATS[settings.format].last_norm
    if norm and norm != settings.capture.last_norm:
        raise CaptureError(
            f"{settings.format} takes the last state {norm}-norm, not {settings.capture.last_norm}-norm."
        )
    if settings.top is not None and settings.format != "shards":
        raise CaptureError(f"{settings.format} has no place for log-probabilities; take the format shards.")
    if settings.capture.total != settings.facts.layers:
        raise CaptureError(f"{settings.facts.name} has {settings.facts.layers} layers, not {settings.capture.total}.")


def _check_rows(plan: Plan, settings: CaptureSettings) -> None:
    facts = settings.facts
    if plan.longest > facts.longest:
        raise CaptureError(
            f"a row has {plan.longest} tokens, but {facts.name} takes {facts.longest}; leave such rows out."
        )
    if plan.largest_id >= facts.vocabulary:
        raise CaptureError(
            f"the rows hold token id {plan.largest_id}, but {facts.name} has {facts.vocabulary} ids: they are"
            " of another vocabulary."
        )


def manifest_of(settings: CaptureSettings, plan: Plan) -> dict[str, Any]:
    """All that the bytes of the output depend on, but for the machine."""
    facts = settings.facts
    return {
        "version": VERSION,
        "format": settings.format,
        "model": {"name": facts.name, "revision": facts.revision, "hidden": facts.hidden, "compute": settings.compute},
        "states": settings.capture.described(),
        "scores": settings.top,
        "vocabulary_sha256": facts.vocabulary_sha256,
        "rows": {"count": plan.rows, "tokens": plan.tokens, "sha256": plan.sha256},
        "batch_tokens": settings.batch_tokens,
        "unit_tokens": settings.unit_tokens,
        "run": {
            "device": settings.device.partition(":")[0],
            "threads": settings.threads,
            "torch": torch.__version__,
            "transformers": importlib.metadata.version("transformers"),
        },
    }


def _claim(settings: CaptureSettings, plan: Plan) -> None:
    """Write the manifest, or refuse an output that another capture began."""
    path, wanted = settings.out / "manifest.json", manifest_of(settings, plan)
    if not path.exists():
        if stranger := next((each for each in settings.out.iterdir() if each.name != ".lock"), None):
            raise CaptureError(f"{settings.out} holds other files ({stranger.name}); name a new folder.")
        write_whole(path, json.dumps(wanted, indent=1).encode())
        return
    found = json.loads(path.read_text("utf-8"))
    if differing := [name for name in wanted if found.get(name) != wanted[name]]:
        name = differing[0]
        raise CaptureError(
            f"{settings.out} holds another capture: its {name} is {found.get(name)}, not {wanted[name]}. Go on with the"
            " same settings, or name another folder."
        )


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CaptureError(f"another run writes to {out}; wait for it, or name another folder.") from None
        yield


def _record_path(out: Path, unit: Unit) -> Path:
    return out / "units" / f"{unit.number:06}.json"


def _record(out: Path, unit: Unit) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(_record_path(out, unit).read_text("utf-8"))
    return record


def _is_done(settings: CaptureSettings, unit: Unit, verify: bool) -> bool:
    """Whether a unit's record is there, and its files are as it says: in size, or in every byte."""
    if not _record_path(settings.out, unit).exists():
        return False
    for file in _record(settings.out, unit)["files"]:
        path = settings.out / file["path"]
        if not path.is_file() or path.stat().st_size != file["bytes"]:
            return False
        if verify and sha256_of(path) != file["sha256"]:
            return False
    return True


def _check_space(out: Path, needed: int) -> None:
    free = shutil.disk_usage(out).free
    if needed * (1 + SPARE_SHARE) > free:
        raise CaptureError(
            f"{needed / 1e9:,.3f} GB are to be written, but {out} has {free / 1e9:,.3f} GB free; make room, take"
            " fewer rows (limit), or write elsewhere."
        )


def _write_index(out: Path, records: list[dict[str, Any]]) -> None:
    for name, rows in (
        ("index.parquet", [row for record in records for row in record["rows"]]),
        ("files.parquet", [file for record in records for file in record["files"]]),
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        write_whole(out / name, sink.getvalue().to_pybytes())
