"""Plain `datasets`: a folder with all columns of both splits, for `load_from_disk`."""

from pathlib import Path
from tempfile import TemporaryDirectory

from kimi_helpers.exports.conventions import dataset_of, new_folder, row_groups
from kimi_helpers.set_tasks import SPLITS
from kimi_helpers.training import SET_SCHEMA


def export_hugging_face(folder: Path, out: Path) -> Path:
    """Write the rows of a set, its columns and types as they are: the folder is there whole or not at all.

    A split without rows is written too.

    Raises:
        FileExistsError: the folder exists.
    """
    from datasets import DatasetDict  # noqa: PLC0415  (slow to import)

    with new_folder(out) as made, TemporaryDirectory(dir=out.parent) as beside:
        splits = {
            split: dataset_of(row_groups(folder, split), SET_SCHEMA, Path(beside, f"{split}.arrow")) for split in SPLITS
        }
        shards = {split: None if len(rows) else 1 for split, rows in splits.items()}  # none at all could not be loaded
        DatasetDict(splits).save_to_disk(str(made), num_shards=shards)
    return out
