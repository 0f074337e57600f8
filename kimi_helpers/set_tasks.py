"""The tasks that a training set is made by: plain functions of a plan and a number, for any worker.

A task writes its files whole and then its result, so one that was killed is done again and one that has finished is
not. Nothing that a task writes depends on another task of its pass.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kimi_helpers.decontamination import find_hits, read_benchmarks
from kimi_helpers.near_duplicates import PERMUTATIONS, signatures
from kimi_helpers.selection import Policy, reasons
from kimi_helpers.shuffling import (
    DIGEST,
    KEY,
    ORDER_COLUMNS,
    RANKS,
    choice_keys,
    collect,
    deal_out,
    in_evaluation,
    shuffled,
    value_counts,
    with_keys,
)
from kimi_helpers.training import SET_SCHEMA
from kimi_helpers.training_inputs import Chunk, InputSettings, file_digest, read_chunk
from kimi_helpers.workspace import replaced_whole, write_whole

SPLITS = ("train", "evaluation")
GROUPED_BY = ("dataset", "grade", "prompt_grade", "provider", "model", "format", "finish_reason")
BINS_A_DOUBLING = 4
LENGTH_BINS = 24 * BINS_A_DOUBLING  # lengths up to 2^24 tokens
GROUP_BYTES = 1 << 23  # of a row group
SIGNATURE = "signature"

# Columns with few values; the others have no repetition that a dictionary could use.
_DICTIONARY = [*GROUPED_BY, "sample", "stack", "ends_turn"]

Fields = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What all tasks of a set share; plain values, so that it travels to other processes.

    Attributes:
        folder: where they work, the same path on every machine.
        buckets: how many shards the set has.
        deals: how many chunks its inputs have.
    """

    folder: Path
    policy: Policy
    inputs: InputSettings
    seed: int
    buckets: int
    deals: int

    @property
    def shards(self) -> Path:
        """The folder that becomes the set."""
        return self.folder / "set"

    def dealt(self) -> list[Path]:
        """The files that the first pass writes."""
        return [self.folder / f"dealt-{number:05d}.arrow" for number in range(self.deals)]


def deal(numbered: tuple[int, Chunk], plan: Plan) -> Fields:
    """Select the rows of a chunk, and deal them out into buckets.

    Returns:
        `rows` read, `rejected`: dataset -> reason -> rows, `hits`: what was found of benchmarks.
    """
    number, chunk = numbered

    def make() -> Fields:
        policy = plan.policy
        rows = read_chunk(chunk, plan.inputs)
        why = reasons(rows, policy, plan.inputs.tokenizer)
        hits: list[Fields] = []
        if policy.benchmarks:
            taken = np.flatnonzero(why == "")
            benchmarks = read_benchmarks(policy.benchmarks, policy.benchmark_words)
            for place, hit in find_hits(rows.take(taken), benchmarks, plan.inputs.tokenizer):
                why[taken[place]] = "shares text with a benchmark"
                hits.append(hit)
        taken = np.flatnonzero(why == "")
        kept = with_keys(rows.take(taken).select(SET_SCHEMA.names), plan.seed)
        if policy.near_duplicates:
            kept = kept.append_column(SIGNATURE, signatures(kept))
        deal_out(kept, plan.buckets, plan.dealt()[number])
        return {"rows": len(rows), "rejected": _by_dataset(rows["dataset"], why), "hits": hits}

    return finished(plan.folder / f"dealt-{number:05d}.json", make)


def _by_dataset(datasets: pa.ChunkedArray, why: NDArray[np.object_]) -> dict[str, dict[str, int]]:
    places = np.flatnonzero(why != "")
    table = pa.table({"dataset": datasets.take(places), "reason": pa.array(why[places].tolist(), pa.string())})
    counted = table.group_by(["dataset", "reason"]).aggregate([([], "count_all")]).to_pylist()
    rejected: dict[str, dict[str, int]] = {}
    for each in counted:
        rejected.setdefault(each["dataset"], {})[each["reason"]] = each["count_all"]
    return rejected


def settle(bucket: int, plan: Plan) -> Fields:
    """Find the exact duplicates of a bucket, and write down what later passes need of the rows that stay.

    Returns:
        `counts`: dataset -> rows that stay, `duplicates`: dataset -> rows that do not.
    """

    def make() -> Fields:
        columns = [*ORDER_COLUMNS, *([SIGNATURE] if plan.policy.near_duplicates else [])]
        rows = collect(plan.dealt(), bucket, columns)
        order, same = shuffled(rows)
        stay = rows.take(order[~same])
        choices = {"choice": choice_keys(stay, plan.seed), "dataset": np.array(stay["dataset"].to_pylist(), np.str_)}
        if plan.policy.near_duplicates:
            ranks = [RANKS[grade] for grade in stay["grade"].to_pylist()]
            named = zip(ranks, stay["row_id"].to_pylist(), strict=True)
            choices["rank"] = np.array([f"{rank}{name}" for rank, name in named], "S33")
            data = np.frombuffer(b"".join(stay[SIGNATURE].to_pylist()), "<u4").reshape(len(stay), PERMUTATIONS)
            with replaced_whole(signatures_path(plan, bucket)) as beside:
                np.save(beside, data)
        with replaced_whole(settled_path(plan, bucket)) as beside:
            np.savez(beside, allow_pickle=False, **choices)
        duplicates = value_counts(rows["dataset"].take(order[same]))
        return {"counts": value_counts(stay["dataset"]), "duplicates": duplicates}

    return finished(plan.folder / f"settled-{bucket:05d}.json", make)


def settled_path(plan: Plan, bucket: int) -> Path:
    """Where `settle` writes down the rows that stay in a bucket: `choice` keys, `dataset` names, and `rank`s."""
    return plan.folder / f"settled-{bucket:05d}.npz"


def signatures_path(plan: Plan, bucket: int) -> Path:
    """Where `settle` writes the signatures of the rows that stay in a bucket, shape [rows, PERMUTATIONS]."""
    return plan.folder / f"signatures-{bucket:05d}.npy"


@dataclass(frozen=True)
class Shard:
    """What is left to know of a bucket before it is written.

    Attributes:
        highest: dataset -> the highest choice key that is taken; a dataset that is not named is taken whole.
        near: the places, in the bucket's order without exact duplicates, of rows that are near duplicates.
    """

    bucket: int
    highest: Mapping[str, int]
    near: tuple[int, ...]


def write(shard: Shard, plan: Plan) -> Fields:
    """Write the rows of a bucket as a shard of each split, in their order.

    Returns:
        `files`: name, rows and sha256 of each; `near`, `over`: dataset -> rows left out as near duplicates, and by
        caps, weights or the size; `groups`, `lengths`: of `describe`.
    """

    def make() -> Fields:
        rows = collect(plan.dealt(), shard.bucket)
        order, same = shuffled(rows)
        rows = rows.take(order[~same]).select([*SET_SCHEMA.names, DIGEST, KEY])
        is_near = np.zeros(len(rows), bool)
        is_near[list(shard.near)] = True
        is_over = ~is_near & _is_over(rows, shard.highest, plan.seed)
        kept = rows.filter(pa.array(~is_near & ~is_over)).select(SET_SCHEMA.names)
        apart = in_evaluation(kept["conversation_id"].to_pylist(), plan.policy.evaluation, plan.seed)
        files, described = [], {}
        for split, of_split in zip(SPLITS, (~apart, apart), strict=True):
            table = kept.filter(pa.array(of_split))
            name = f"{split}-{shard.bucket:05d}-of-{plan.buckets:05d}.parquet"
            path = plan.folder / name
            write_rows_parquet(table, path)
            files.append({"name": name, "rows": len(table), "sha256": file_digest(path)})
            # a killed writer leaves its unfinished file in the folder of work, never in the set
            path.rename(plan.shards / name)
            described[split] = describe(table)
        return {
            "files": files,
            "near": value_counts(rows["dataset"].filter(pa.array(is_near))),
            "over": value_counts(rows["dataset"].filter(pa.array(is_over))),
            "described": described,
        }

    return finished(plan.folder / f"written-{shard.bucket:05d}.json", make)


def _is_over(rows: pa.Table, highest: Mapping[str, int], seed: int) -> NDArray[np.bool_]:
    chosen = choice_keys(rows, seed)
    over = np.zeros(len(rows), bool)
    for dataset, key in highest.items():
        of_dataset = np.array([name == dataset for name in rows["dataset"].to_pylist()], bool)
        over |= of_dataset & ((chosen > np.uint64(key)) if key >= 0 else True)
    return over


def write_rows_parquet(rows: pa.Table, path: Path) -> None:
    """Write rows of `SET_SCHEMA` as one Parquet file, whole, in row groups of about `GROUP_BYTES`."""
    a_group = max(64, GROUP_BYTES * len(rows) // max(1, rows.nbytes))
    with replaced_whole(path) as beside:
        pq.write_table(
            rows.combine_chunks(),
            beside,
            row_group_size=a_group,
            compression="zstd",
            use_dictionary=_DICTIONARY,
            write_statistics=["row_id", "prompt_length", "completion_length"],
        )


def describe(rows: pa.Table) -> Fields:
    """Counts and lengths of rows, in a form that adds up over shards.

    Returns:
        `groups`: rows, prompt tokens and completion tokens for each value of `GROUPED_BY`; `lengths`: dataset -> how
        many completions have a length of each of `LENGTH_BINS` bins, bin i from 2^(i / 4) tokens on.
    """
    groups = rows.group_by(list(GROUPED_BY)).aggregate(
        [([], "count_all"), ("prompt_length", "sum"), ("completion_length", "sum")]
    )
    renamed = groups.rename_columns([*GROUPED_BY, "rows", "prompt_tokens", "completion_tokens"])
    bins = np.floor(np.log2(np.maximum(1, rows["completion_length"].to_numpy())) * BINS_A_DOUBLING).astype(np.int64)
    datasets = np.array(rows["dataset"].to_pylist(), np.str_)
    lengths = {
        str(name): np.bincount(bins[datasets == name], minlength=LENGTH_BINS).tolist() for name in np.unique(datasets)
    }
    return {"groups": renamed.to_pylist(), "lengths": lengths}


def finished(result: Path, make: Callable[[], Fields]) -> Fields:
    """What `make` returned, now or in an earlier run that got that far."""
    if result.exists():
        return dict(json.loads(result.read_bytes()))
    made = make()
    write_whole(result, json.dumps(made).encode())
    return made


def plan_digest(fields: Mapping[str, Any]) -> str:
    """The sha256 of values as JSON."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def added(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The sums of counts by name, the names in their order."""
    names = sorted({name for each in counts for name in each})
    return {name: sum(each.get(name, 0) for each in counts) for name in names}
