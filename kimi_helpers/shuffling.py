"""An order for rows that is uniform, seeded, and the same on any machine: the order of a keyed hash of their ids.

A row's place depends on its own ids and the seed, never on where it was read or by whom. So the rows can be dealt out
into buckets by any number of workers, each bucket holds the rows of one range of keys, and the buckets sorted one by
one are the shuffled set. Rows with equal ids have equal keys: exact duplicates meet in their bucket.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kimi_helpers.reconstruction import Grade
from kimi_helpers.token_lists import DIGEST_BYTES, flat_rows, row_digests
from kimi_helpers.workspace import replaced_whole

DIGEST, KEY = "digest", "key"
RANKS = {grade.value: rank for rank, grade in enumerate(Grade)}

Keys = NDArray[np.uint64]


def keys(numbers: Keys, purpose: str, seed: int) -> Keys:
    """Numbers that look drawn anew for each purpose and seed: a bijection of 64 bits, splitmix64's finaliser twice."""
    salt = hashlib.blake2b(f"{purpose} {seed}".encode(), digest_size=16).digest()
    first, second = np.frombuffer(salt, "<u8")
    return mixed(mixed(numbers ^ first) + second)


def mixed(numbers: Keys) -> Keys:
    """The finaliser of splitmix64: a bijection in which every bit of a number changes half of the result's."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def with_keys(rows: pa.Table, seed: int) -> pa.Table:
    """The rows with the digest of their ids and the key that places them, as columns `digest` and `key`."""
    ids = flat_rows(rows["input_ids"])
    digests = b"".join(row_digests(ids, rows["prompt_length"].to_pylist()))
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST_BYTES), len(rows), [None, pa.py_buffer(digests)])
    placed = keys(first_halves(digests), "order", seed)
    return rows.append_column(DIGEST, column).append_column(KEY, pa.array(placed))


def first_halves(digests: bytes) -> Keys:
    """The first eight bytes of each digest as numbers."""
    return np.frombuffer(digests, "<u8").reshape(-1, 2)[:, 0].copy()


def in_evaluation(conversation_ids: Sequence[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Which conversations are kept apart: about a share of them, each with all of its rows."""
    numbers = np.frombuffer(bytes.fromhex("".join(conversation_ids)), ">u8").astype(np.uint64)
    drawn: NDArray[np.bool_] = keys(numbers, "evaluation", seed) < np.uint64(int(share * 2**64))
    return drawn


def bucket_of(placed: Keys, buckets: int) -> NDArray[np.int64]:
    """The bucket of each key, 0 to `buckets - 1`, in the order of the keys."""
    return ((placed >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def deal_out(rows: pa.Table, buckets: int, path: Path) -> None:
    """Write rows of `with_keys` as a file of `buckets` record batches, those of bucket i in batch i."""
    of_rows = bucket_of(rows[KEY].to_numpy(), buckets)
    order = np.argsort(of_rows, kind="stable")
    dealt = rows.take(order).combine_chunks()
    borders = np.searchsorted(of_rows[order], np.arange(buckets + 1))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with replaced_whole(path) as beside, pa.ipc.new_file(beside, rows.schema, options=options) as file:
        for start, stop in pairwise(borders.tolist()):
            batches = dealt.slice(start, stop - start).to_batches()
            file.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema))


def collect(paths: Sequence[Path], bucket: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of one bucket from all files of `deal_out`, in no particular order."""
    return pa.concat_tables([_batch(path, bucket, columns) for path in paths])


def _batch(path: Path, bucket: int, columns: Sequence[str] | None) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        if columns is None:
            return pa.Table.from_batches([pa.ipc.open_file(source).get_batch(bucket)])
        names = pa.ipc.open_file(source).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
        return pa.Table.from_batches([pa.ipc.open_file(source, options=options).get_batch(bucket)])


ORDER_COLUMNS = ("row_id", "grade", "dataset", DIGEST, KEY)


def shuffled(rows: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The order of a bucket's rows, and which of them, in that order, are exact duplicates of the one before.

    Of rows with equal ids the first is of the best grade, and among these of the least `row_id`.

    Args:
        rows: at least the columns of `ORDER_COLUMNS`, in any order.
    """
    ranks = np.array([RANKS[grade] for grade in rows["grade"].to_pylist()], np.int64)
    halves = np.frombuffer(b"".join(rows[DIGEST].to_pylist()), ">u8").reshape(-1, 2)
    row_ids = np.array(rows["row_id"].to_pylist(), "S32")
    order = np.lexsort((row_ids, ranks, halves[:, 1], halves[:, 0], rows[KEY].to_numpy()))
    same = np.zeros(len(order), bool)
    same[1:] = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
    return order, same


def limits(
    counts: Mapping[str, int], caps: Mapping[str, int], weights: Mapping[str, float], size: int
) -> dict[str, int]:
    """How many rows each dataset gives: no more than its cap, weighed datasets in proportion, `size` in all.

    Weights are rows for each row of a dataset of weight 1: the scarcest weighed dataset gives all its rows, the others
    as many as their weights allow beside it. No row is ever repeated. `size` 0 is as many as there are; a smaller one
    takes the same share of each dataset.
    """
    given = {name: min(number, caps.get(name, number)) for name, number in counts.items()}
    weighed = {name: weights[name] for name in given if name in weights and given[name]}
    if weighed:
        scale = min(given[name] / weight for name, weight in weighed.items())
        given |= {name: min(given[name], int(scale * weight + 1e-9)) for name, weight in weighed.items()}
    total = sum(given.values())
    if not size or size >= total:
        return given
    shares = {name: number * size / total for name, number in given.items()}
    given = {name: int(share) for name, share in shares.items()}
    by_rest = sorted(given, key=lambda name: (given[name] - shares[name], name))
    for name in by_rest[: size - sum(given.values())]:
        given[name] += 1
    return given


def choice_keys(rows: pa.Table, seed: int) -> Keys:
    """Keys by which rows are chosen where not all are taken: independent of their places in the order."""
    return keys(first_halves(b"".join(rows[DIGEST].to_pylist())), "choice", seed)


def highest_taken(chosen_from: Keys, number: int) -> int:
    """The key up to which `number` of some keys are taken; -1 where none are."""
    if number <= 0:
        return -1
    if number >= len(chosen_from):
        return 2**64 - 1
    return int(np.partition(chosen_from, number - 1)[number - 1])


def value_counts(column: pa.ChunkedArray) -> dict[str, int]:
    """Value -> how many rows have it."""
    return {each["values"]: each["counts"] for each in pc.value_counts(column).to_pylist()}
