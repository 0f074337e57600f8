"""speculators: an Arrow folder of `datasets` with `token_freq.pt` and the vocabulary maps beside the rows."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import torch

from kimi_helpers.draft_vocabulary import draft_vocabulary
from kimi_helpers.exports.conventions import ID_DTYPE, dataset_of, frequencies_of, new_folder, row_groups

_SCHEMA = pa.schema([("input_ids", pa.list_(pa.int64())), ("loss_mask", pa.list_(pa.int64())), ("seq_len", pa.int64())])


def export_speculators(folder: Path, out: Path, draft_size: int = 32_000) -> Path:
    """Write the rows to train on as `prepare-data` leaves them: the folder is there whole or not at all.

    Raises:
        FileExistsError: the folder exists.
    """
    with new_folder(out) as made, TemporaryDirectory(dir=out.parent) as beside:
        tables = map(_with_lengths, row_groups(folder, "train"))
        rows = dataset_of(tables, _SCHEMA, Path(beside, "rows.arrow"))
        rows.set_format("torch")
        rows.save_to_disk(str(made))
        counts = frequencies_of(folder)
        seen = np.flatnonzero(counts)
        torch.save(dict(zip(seen.tolist(), counts[seen].tolist(), strict=True)), made / "token_freq.pt")
        draft = draft_vocabulary(counts, draft_size)
        np.save(made / f"d2t-{draft_size}.npy", draft.d2t.astype(ID_DTYPE))
        np.save(made / f"t2d-{draft_size}.npy", draft.t2d)
    return out


def _with_lengths(table: pa.Table) -> pa.Table:
    lengths = pa.array(table["prompt_length"].to_numpy() + table["completion_length"].to_numpy())
    return table.select(["input_ids", "loss_mask"]).append_column("seq_len", lengths)
