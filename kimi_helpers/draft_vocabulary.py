"""The draft vocabulary of an EAGLE-3 head: the most frequent sampled tokens, and the two maps that trainers read.

`d2t` holds offsets, target id = draft id + d2t[draft id], draft ids in the order of their target ids; `t2d` says which
target ids are in the draft vocabulary. Ties go to the lower id, and where too few tokens were seen the lowest unseen
ids fill up: the rules of vllm-project/speculators, whose maps SpecForge and Model-Optimizer read alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kimi_helpers.token_lists import flat_rows


@dataclass(frozen=True)
class DraftVocabulary:
    """Which target tokens a drafter can propose.

    Attributes:
        d2t: offsets, int64, shape [draft vocabulary].
        t2d: bool, shape [target vocabulary].
    """

    d2t: NDArray[np.int64]
    t2d: NDArray[np.bool_]


def token_frequencies(shards: Iterable[Path], size: int) -> NDArray[np.int64]:
    """How often each id was sampled (mask 1) in some shards, shape [size]; a row group in memory at a time."""
    counts = np.zeros(size, np.int64)
    for shard in shards:
        file = pq.ParquetFile(shard, pre_buffer=False)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=["input_ids", "loss_mask"])
            ids, mask = flat_rows(rows["input_ids"])[0], flat_rows(rows["loss_mask"])[0]
            counts += np.bincount(ids[mask == 1], minlength=size)
    return counts


def draft_vocabulary(frequencies: NDArray[np.int64], size: int) -> DraftVocabulary:
    """The draft vocabulary of a size.

    Raises:
        ValueError: it would be larger than the target's, or empty.
    """
    if not 0 < size <= len(frequencies):
        raise ValueError(f"a draft vocabulary has 1 to {len(frequencies)} tokens, not {size}.")
    chosen = np.sort(np.argsort(-frequencies, kind="stable")[:size])
    t2d = np.zeros(len(frequencies), bool)
    t2d[chosen] = True
    return DraftVocabulary((chosen - np.arange(size)).astype(np.int64), t2d)


def coverage(frequencies: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of sampled tokens that the k most frequent ids cover, shape [target vocabulary], for k from 1."""
    ordered = np.sort(frequencies)[::-1]
    return np.cumsum(ordered) / max(1, int(ordered.sum()))
