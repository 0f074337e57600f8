"""What differs between trainers, in one place; and how the rows of a set are read for all of them.

Every export marks the tokens that were sampled, unshifted: speculators shifts ids, states and mask together by one;
Model-Optimizer shifts labels and mask; SpecForge 0.2.0 shifts targets but not the mask (sgl-project/SpecForge#885).
A mask shifted here would be shifted twice once a trainer changes.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.draft_vocabulary import DraftVocabulary, draft_vocabulary, token_frequencies
from kimi_helpers.merging import read_manifest, shard_paths

ID_DTYPE = np.int64  # of ids and masks in every trainer's tensors


def row_groups(folder: Path, split: str) -> Iterator[pa.Table]:
    """The rows of a split in the set's order, a row group at a time."""
    for path in shard_paths(folder, split):
        file = pq.ParquetFile(path, pre_buffer=False)
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def frequencies_of(folder: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How often each id of the target's vocabulary was sampled in the rows to train on."""
    counts: np.ndarray[tuple[int], np.dtype[np.int64]] = token_frequencies(
        shard_paths(folder, "train"), read_manifest(folder)["vocabulary"]["size"]
    )
    return counts


def vocabulary_of_set(folder: Path, size: int) -> DraftVocabulary:
    """The draft vocabulary of a set's rows to train on."""
    return draft_vocabulary(frequencies_of(folder), size)
