"""What differs between trainers, in one place; and how the rows of a set are read for all of them.

Every export marks the tokens that were sampled, unshifted: speculators shifts ids, states and mask together by one;
Model-Optimizer shifts labels and mask; SpecForge 0.2.0 shifts targets but not the mask (sgl-project/SpecForge#885).
A mask shifted here would be shifted twice once a trainer changes.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kimi_helpers.draft_vocabulary import DraftVocabulary, draft_vocabulary, token_frequencies
from kimi_helpers.merging import read_manifest, shard_paths

if TYPE_CHECKING:
    from datasets import Dataset

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


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write to; once the block has ended it takes its place, or goes away on an error.

    Raises:
        FileExistsError: the folder exists.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists: name another folder.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent) as beside:
        made = Path(beside, out.name)
        yield made
        made.rename(out)


def dataset_of(tables: Iterable[pa.Table], schema: pa.Schema, stream: Path) -> "Dataset":
    """Tables as a dataset that lies in a file, a table in memory at a time."""
    from datasets import Dataset  # noqa: PLC0415  (slow to import)

    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for table in tables:
            writer.write_table(table.cast(schema))
    return Dataset.from_file(str(stream))
