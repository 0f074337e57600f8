"""A training set from any number of files: selected, without duplicates, merged, shuffled and split.

Three passes, each a set of tasks that any worker can take: chunks of the inputs are dealt out into buckets, each bucket
settles which of its rows stay, and each bucket is written as a shard. Which tasks there are, and what each writes,
depends on the inputs alone, so the set is the same to the byte with any number of workers.

All work lies beside the set, in a folder of its own. A run that breaks off leaves that folder and no set; the next run
with the same inputs goes on from what is finished there, one with others begins anew.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kimi_helpers.bulk_reconstruction import OrderedMap
from kimi_helpers.decontamination import read_benchmarks
from kimi_helpers.near_duplicates import PERMUTATIONS, near_duplicates, places_by_bucket
from kimi_helpers.selection import Policy
from kimi_helpers.set_tasks import (
    GROUPED_BY,
    SPLITS,
    Fields,
    Plan,
    Shard,
    added,
    deal,
    plan_digest,
    settle,
    settled_path,
    signatures_path,
    write,
)
from kimi_helpers.shuffling import highest_taken, limits
from kimi_helpers.training import vocabulary_of
from kimi_helpers.training_inputs import (
    CHUNK_BYTES,
    InputSettings,
    Source,
    chunk_bytes,
    file_digest,
    plan_chunks,
    residual_of,
)
from kimi_helpers.workspace import write_whole

MANIFEST = "manifest.json"
CONTAMINATION = "contamination.jsonl"
MOST_BUCKETS = 1024
_PLAN, _LOCK = "plan.json", "lock"


class MergeError(ValueError):
    """No set can be made; the message says why and what to do."""


def build_set(
    sources: Sequence[Source],
    policy: Policy,
    out: Path,
    seed: int = 0,
    size: int = 0,
    inputs: InputSettings | None = None,
    each: OrderedMap = map,
    chunk: int = CHUNK_BYTES,
) -> Fields:
    """Make a training set: a folder of Parquet shards with a manifest, whole or not at all.

    Args:
        sources: of `find_source`. The set does not depend on their order.
        policy: what is taken.
        out: the folder. A set that is there is replaced.
        seed: of order, choice and split.
        size: how many rows at most; 0: all.
        inputs: what the reading of all sources shares.
        each: `map` in this process, or that of `local_workers` or of `cluster_workers`.
        chunk: about how many bytes a task reads and a shard holds.

    Returns:
        The manifest.

    Raises:
        MergeError: no row is left, the folder is no training set, or another run makes it.
        TrainingInputError, JournalError, BenchmarkError: an input cannot be read.
    """
    inputs = inputs or InputSettings()
    if not sources:
        raise MergeError("there is nothing to make a set of: give what `reconstruct` wrote.")
    if out.exists() and not (out / MANIFEST).is_file():
        raise MergeError(f"{out} is no training set, so it is left alone: name another folder.")
    out = out.resolve()
    digests = {source: file_digest(source.path) for source in sources}
    ordered = sorted(sources, key=lambda source: (source.dataset, source.path.name, digests[source]))
    chunks = [part for source in ordered for part in plan_chunks(source, chunk)]
    buckets = min(MOST_BUCKETS, sum(map(chunk_bytes, chunks)) // chunk + 1)
    told = _inputs_told({source: digests[source] for source in ordered}, policy, inputs, seed, size, chunk)
    with _working(out.with_name(f"{out.name}.unfinished"), told) as folder:
        plan = Plan(folder, policy, inputs, seed, buckets, len(chunks))
        plan.shards.mkdir(exist_ok=True)
        dealt = list(each(partial(deal, plan=plan), list(enumerate(chunks))))
        settled = list(each(partial(settle, plan=plan), range(buckets)))
        shards = _shards(plan, settled, size)
        written = list(each(partial(write, plan=plan), shards))
        manifest = told | _counted(plan, dealt, settled, written)
        _check(manifest)
        hits = [hit for one in dealt for hit in one["hits"]]
        if policy.benchmarks:
            hits.sort(key=lambda hit: (hit["benchmark"], hit["row_id"]))
            lines = "".join(json.dumps(hit, ensure_ascii=False) + "\n" for hit in hits)
            _put(lines, CONTAMINATION, plan)
        _put(json.dumps(manifest, indent=1, ensure_ascii=False), MANIFEST, plan)
        if out.exists():
            out.rename(folder / "before")
        plan.shards.rename(out)
    return manifest


def read_manifest(folder: Path) -> Fields:
    """The manifest of a training set.

    Raises:
        MergeError: the folder is none.
    """
    try:
        return dict(json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, ValueError):
        raise MergeError(
            f"{folder} is no training set: it has no {MANIFEST}; make one with `training build`."
        ) from None


def shard_paths(folder: Path, split: str) -> list[Path]:
    """The shards of a split, `train` or `evaluation`, in the set's order."""
    return [folder / file["name"] for file in read_manifest(folder)["files"] if file["name"].startswith(split)]


@contextmanager
def _working(folder: Path, told: Fields) -> Iterator[Path]:
    """The folder of unfinished work: of an earlier run with the same inputs, or empty; gone once the set is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MergeError(f"another run works in {folder}: wait for it, or name another folder.") from None
        if not _is_of(folder, told):
            _empty(folder)
            write_whole(folder / _PLAN, json.dumps(told).encode())
        try:
            yield folder
        except MergeError:  # there is nothing to go on with
            shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


def _put(text: str, name: str, plan: Plan) -> None:
    write_whole(plan.folder / name, text.encode())
    (plan.folder / name).rename(plan.shards / name)


def _is_of(folder: Path, told: Fields) -> bool:
    try:
        return plan_digest(json.loads((folder / _PLAN).read_bytes())) == plan_digest(told)
    except (OSError, ValueError):
        return False


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


def _inputs_told(
    sources: Mapping[Source, str], policy: Policy, inputs: InputSettings, seed: int, size: int, chunk: int
) -> Fields:
    """All that the set depends on, without any path of this machine."""
    named = [policy.profiles, *policy.benchmarks]
    settings = policy.model_dump(mode="json", exclude={"profiles", "benchmarks"})
    vocabulary = vocabulary_of(inputs.tokenizer, inputs.format)
    return {
        "versions": dict(_versions()),
        "inputs": [
            {
                "dataset": source.dataset,
                "kind": source.kind,
                "name": source.path.name,
                "sha256": digest,
                "residual": residual_of(source.path),
            }
            for source, digest in sources.items()
        ],
        "policy": settings,
        "policy_files": [{"name": Path(path).name, "sha256": file_digest(Path(path))} for path in named if path],
        "seed": seed,
        "size": size,
        "chunk": chunk,
        "format": inputs.format,
        "vocabulary": {"ranks_sha256": vocabulary.sha256, "size": vocabulary.size},
    }


@cache
def _versions() -> Mapping[str, str]:
    return {name: version(name) for name in ("kimi-helpers", "pyarrow", "numpy")}


def _shards(plan: Plan, settled: Sequence[Fields], size: int) -> list[Shard]:
    """What is left to decide over all buckets together: near duplicates, then caps, weights and size."""
    terms = plan.policy.datasets
    near: list[tuple[int, ...]] = [() for _ in settled]
    if plan.policy.near_duplicates:
        near = _near(plan, [sum(each["counts"].values()) for each in settled])
    caps = {name: each.cap for name, each in terms.items() if each.cap is not None}
    weights = {name: each.weight for name, each in terms.items() if each.weight is not None}
    highest: dict[str, int] = {}
    if caps or weights or size:
        chosen_from = _choices(plan, near)
        counts = {name: len(choices) for name, choices in chosen_from.items()}
        given = limits(counts, caps, weights, size)
        highest = {name: highest_taken(chosen_from[name], given[name]) for name in counts if given[name] < counts[name]}
    return [Shard(bucket, highest, places) for bucket, places in enumerate(near)]


def _near(plan: Plan, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The near duplicates of each bucket. Signatures lie on disk; in memory are some 50 bytes a row."""
    made = np.lib.format.open_memmap(
        plan.folder / "signatures.npy", "w+", np.uint32, (max(1, sum(sizes)), PERMUTATIONS)
    )
    ranks = []
    start = 0
    for bucket, rows in enumerate(sizes):
        made[start : start + rows] = np.load(signatures_path(plan, bucket))
        with np.load(settled_path(plan, bucket)) as settled:
            ranks.append(settled["rank"])
        start += rows
    left_out = near_duplicates(made[:start], np.concatenate(ranks), plan.policy.near_duplicates)
    return places_by_bucket(left_out, sizes)


def _choices(plan: Plan, near: Sequence[Sequence[int]]) -> dict[str, NDArray[np.uint64]]:
    """Dataset -> the choice keys of its rows, eight bytes a row."""
    parts: dict[str, list[NDArray[np.uint64]]] = {}
    for bucket, places in enumerate(near):
        with np.load(settled_path(plan, bucket)) as settled:
            choice, dataset = (np.delete(settled[name], list(places)) for name in ("choice", "dataset"))
        for name in np.unique(dataset):
            parts.setdefault(str(name), []).append(choice[dataset == name])
    return {name: np.concatenate(parts[name]) for name in sorted(parts)}


def _counted(plan: Plan, dealt: Sequence[Fields], settled: Sequence[Fields], written: Sequence[Fields]) -> Fields:
    """What the passes counted, added up."""
    by_reason: dict[str, dict[str, int]] = {}
    passes = [one["rejected"] for one in dealt]
    for reason, counted in (
        ("exact duplicate", [one["duplicates"] for one in settled]),
        ("near duplicate", [one["near"] for one in written]),
        ("over the cap, weight or size", [one["over"] for one in written]),
    ):
        passes.append({name: {reason: number} for name, number in added(counted).items()})
    for name in sorted({name for one in passes for name in one}):
        by_reason[name] = added([one.get(name, {}) for one in passes])
    benchmarks = {}
    if plan.policy.benchmarks:
        read = read_benchmarks(plan.policy.benchmarks, plan.policy.benchmark_words)
        hits = sum(len(one["hits"]) for one in dealt)
        benchmarks = {"prompts": read.prompts, "too_short_to_look_for": read.too_short, "rows_found": hits}
    return {
        "rows_read": sum(one["rows"] for one in dealt),
        "rejected": by_reason,
        "benchmarks": benchmarks,
        "groups": {split: _merged([one["described"][split]["groups"] for one in written]) for split in SPLITS},
        "lengths": {split: _lengths([one["described"][split]["lengths"] for one in written]) for split in SPLITS},
        "files": [file for split in range(len(SPLITS)) for one in written for file in [one["files"][split]]],
    }


def _merged(groups: Sequence[Sequence[Fields]]) -> list[Fields]:
    def name(group: Fields) -> tuple[str, ...]:
        return tuple(str(group[column]) for column in GROUPED_BY)

    merged = []
    for _, same in groupby(sorted((group for part in groups for group in part), key=name), key=name):
        of_name = list(same)
        sums = {
            column: sum(each[column] for each in of_name) for column in ("rows", "prompt_tokens", "completion_tokens")
        }
        merged.append({column: of_name[0][column] for column in GROUPED_BY} | sums)
    return merged


def _lengths(parts: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    names = sorted({name for part in parts for name in part})
    return {
        name: [sum(bins) for bins in zip(*(part[name] for part in parts if name in part), strict=True)]
        for name in names
    }


def _check(manifest: Mapping[str, Any]) -> None:
    if not any(group["rows"] for group in manifest["groups"]["train"]):
        reasons = added(list(manifest["rejected"].values()))
        told = ", ".join(f"{reason} {number}" for reason, number in reasons.items() if number) or "there were none"
        raise MergeError(f"no row is left to train on, of {manifest['rows_read']} read ({told}): change the policy.")
