"""Near duplicates: completions that are nearly the same text, found by MinHash (datasketch) and banded signatures.

Two rows are compared by their completions alone: a tool loop's rows share long prompts, and samples of one prompt
share all of it, and neither are duplicates. A completion is the set of its runs of `SHINGLE` token ids; those with
fewer tokens than `FEWEST_TOKENS` say too little and are never near duplicates.

The similarity that a signature of `PERMUTATIONS` shows has a standard error of at most 0.045. Bands are laid so that a
pair at the threshold meets in one with the probability that datasketch chooses for it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

from kimi_helpers.shuffling import mixed
from kimi_helpers.token_lists import flat_rows

SHINGLE = 5
FEWEST_TOKENS = 40
PERMUTATIONS = 128
SIGNATURE_BYTES = 4 * PERMUTATIONS

Signatures = NDArray[np.uint32]


def signatures(rows: pa.Table) -> pa.FixedSizeBinaryArray:
    """The MinHash of each row's completion, `PERMUTATIONS` little-endian 32-bit numbers; all ones for a short one."""
    ids, offsets = flat_rows(rows["input_ids"])
    starts = offsets[:-1] + rows["prompt_length"].to_numpy()
    blank = MinHash(PERMUTATIONS, seed=1, hashfunc=int)
    data = bytearray()
    for start, end in zip(starts.tolist(), offsets[1:].tolist(), strict=True):
        data += _signature(ids[start:end], blank).astype("<u4").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(SIGNATURE_BYTES), len(rows), [None, pa.py_buffer(bytes(data))]
    )


def _signature(completion: NDArray[np.int32], blank: MinHash) -> Signatures:
    if len(completion) < FEWEST_TOKENS:
        return np.full(PERMUTATIONS, 2**32 - 1, np.uint32)
    hashes = np.zeros(len(completion) - SHINGLE + 1, np.uint64)
    for shift in range(SHINGLE):
        hashes = mixed(hashes) ^ completion[shift : shift + len(hashes)].astype(np.uint64)
    minhash = blank.copy()
    minhash.update_batch((np.unique(mixed(hashes)) >> np.uint64(32)).tolist())
    found: Signatures = minhash.hashvalues.astype(np.uint32)
    return found


def near_duplicates(made: Signatures, ranks: NDArray[np.bytes_], threshold: float) -> NDArray[np.bool_]:
    """Which rows are left out, so that of rows that are near duplicates of each other one stays.

    Rows that are joined by a chain of near duplicates are one group; the one of the least rank stays.

    Args:
        made: signatures, shape [rows, PERMUTATIONS].
        ranks: shape [rows], distinct.
        threshold: the Jaccard similarity from which two rows are near duplicates.
    """
    groups = np.arange(len(made))

    def root(place: int) -> int:
        while groups[place] != place:
            groups[place] = groups[groups[place]]
            place = int(groups[place])
        return place

    for one, other in _pairs(made, threshold):
        first, second = root(one), root(other)
        if first != second:
            keep, leave = (first, second) if ranks[first] < ranks[second] else (second, first)
            groups[leave] = keep
    return np.array([root(place) != place for place in range(len(made))], bool)


def _pairs(made: Signatures, threshold: float) -> Iterator[tuple[int, int]]:
    """Pairs of rows that agree in a band and, by their whole signatures, in at least the threshold."""
    bands = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    long = np.flatnonzero((made != np.uint32(2**32 - 1)).any(axis=1))
    for band in range(bands.b):
        names = np.zeros(len(long), np.uint64)
        for column in range(band * bands.r, (band + 1) * bands.r):
            names = mixed(names) ^ made[long, column]
        order = np.argsort(names, kind="stable")
        new = np.concatenate([[True], names[order][1:] != names[order][:-1]]) if len(order) else np.zeros(0, bool)
        firsts = order[np.flatnonzero(new)[np.cumsum(new) - 1]]
        for before in (firsts, np.roll(order, 1)):  # with the group's first, and with the one before
            places = np.flatnonzero(~new)
            pairs = np.stack([long[before[places]], long[order[places]]], axis=1)
            alike = (made[pairs[:, 0]] == made[pairs[:, 1]]).mean(axis=1) >= threshold
            yield from map(tuple, pairs[alike].tolist())


def places_by_bucket(left_out: NDArray[np.bool_], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The places that are left out in each of some buckets, whose rows stand one after another."""
    borders = np.cumsum([0, *sizes]).tolist()
    return [tuple(np.flatnonzero(left_out[start:stop]).tolist()) for start, stop in pairwise(borders)]
