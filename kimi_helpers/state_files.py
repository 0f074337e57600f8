"""How captured states lie on disk: a writer for each trainer's format, and our own packed shards.

The loss mask marks the tokens that the model sampled and is never shifted: speculators shifts it, SpecForge does not
(sgl-project/SpecForge#885). Layouts, as the trainers' loaders read them (SpecForge 0.2.0, speculators 0.9.0,
nvidia-modelopt 0.47.0), L being the tokens of a row, H the hidden size, k the auxiliary layers:

* `specforge`: `rows_G-E/data_I.ckpt`; input_ids, loss_mask int64 [L]; hidden_state [1, L, H] after the final norm;
  aux_hidden_state [1, L, k*H].
* `speculators`: `hidden_states/hs_I.safetensors`, I being the row's place in the training set; token_ids int64 [L];
  hidden_states [L, k+1, H], the last before the final norm.
* `modelopt`: `ROW_ID.pt`; input_ids, loss_mask int64 [L]; hidden_states [L, H] after the final norm;
  aux_hidden_states [L, k*H]; conversation_id.
* `shards`: `shards/shard-N.safetensors`, a unit a shard, rows packed without padding; input_ids int32 [T], loss_mask
  uint8 [T], offsets int64 [rows + 1], hidden_states [T, k+1, H]; and where tokens were scored logprob [T],
  top_ids and top_logprobs [T, n].
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from kimi_helpers.capture_rows import CaptureRow, Unit
from kimi_helpers.captures import CaptureError, Norm
from kimi_helpers.hidden_states import CapturedRow

PART = ".part"
ROWS_A_FOLDER = 2000
LONGEST_NAME = 200


@dataclass(frozen=True)
class StateFormat:
    """A way to lay states down.

    Attributes:
        last_norm: whether the last state has to be before or after the final norm; None: either, the manifest tells.
        token_bytes: what a token takes besides its states: ids and masks.
        row_bytes: about what a row takes besides its tokens.
        name: the file of a row, relative to the output; None where a unit is one file.
    """

    last_norm: Norm | None
    token_bytes: int
    row_bytes: int
    name: Callable[[CaptureRow], str] | None


def _specforge_name(row: CaptureRow) -> str:
    group = row.index - row.index % ROWS_A_FOLDER
    return f"rows_{group}-{group + ROWS_A_FOLDER}/data_{row.index}.ckpt"


def _modelopt_name(row: CaptureRow) -> str:
    name = quote(row.row_id, safe=" ")
    name = "%2E" + name[1:] if name.startswith(".") else name
    if len(name) > LONGEST_NAME:
        raise CaptureError(f"row {row.index}: its name is too long for a file's ({len(name)} characters); shorten it.")
    return f"{name}.pt"


FORMATS = {
    "shards": StateFormat(None, 5, 8, None),
    "specforge": StateFormat("post", 16, 2250, _specforge_name),
    "speculators": StateFormat("pre", 8, 200, lambda row: f"hidden_states/hs_{row.index}.safetensors"),
    "modelopt": StateFormat("post", 16, 2100, _modelopt_name),
}


def write_rows(out: Path, format: str, unit: Unit, rows: Sequence[CapturedRow]) -> dict[str, Any]:
    """Write the states of a unit, each file whole or not at all.

    Returns:
        What was written, for the unit's record: `files` with path, bytes and sha256, `rows` with name, index, tokens,
        sha256 of ids and mask, file, and where in the file the row starts.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    name = FORMATS[format].name
    if name is None:
        path = f"shards/shard-{unit.number:06}.safetensors"
        files = [_written(out, path, lambda beside: save_file(_shard(rows), beside))]
        places = [(path, start) for start in accumulate((each.row.ids.size for each in rows[:-1]), initial=0)]
    else:
        write = {"specforge": _write_specforge, "speculators": _write_speculators, "modelopt": _write_modelopt}[format]
        files = [_written(out, name(each.row), partial(write, each)) for each in rows]
        places = [(file["path"], 0) for file in files]
    told = [
        {
            "row_id": each.row.row_id,
            "index": each.row.index,
            "tokens": int(each.row.ids.size),
            "sha256": each.row.sha256,
            "file": file,
            "start": start,
        }
        for each, (file, start) in zip(rows, places, strict=True)
    ]
    return {"unit": unit.number, "files": files, "rows": told}


def _written(out: Path, name: str, write: Callable[[Path], None]) -> dict[str, Any]:
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, suffix=PART)
    os.close(handle)
    try:
        write(Path(beside))
        Path(beside).chmod(0o644)
        told = {"path": name, "bytes": Path(beside).stat().st_size, "sha256": sha256_of(Path(beside))}
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    return told


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shard(rows: Sequence[CapturedRow]) -> dict[str, Tensor]:
    tensors = {
        "input_ids": torch.from_numpy(np.concatenate([each.row.ids for each in rows])),
        "loss_mask": torch.from_numpy(np.concatenate([each.row.mask for each in rows])),
        "offsets": torch.tensor([0, *accumulate(each.row.ids.size for each in rows)]),
        "hidden_states": torch.cat([each.states for each in rows]),
    }
    scores = [each.scores for each in rows if each.scores is not None]
    if scores:
        tensors["logprob"] = torch.from_numpy(np.concatenate([score.logprob for score in scores]))
        tensors["top_ids"] = torch.from_numpy(np.concatenate([score.top_ids for score in scores]))
        tensors["top_logprobs"] = torch.from_numpy(np.concatenate([score.top_logprobs for score in scores]))
    return tensors


def _ids(each: CapturedRow) -> Tensor:
    return torch.from_numpy(each.row.ids.astype(np.int64))


def _mask(each: CapturedRow) -> Tensor:
    return torch.from_numpy(each.row.mask.astype(np.int64))


def _last(each: CapturedRow) -> Tensor:
    return each.states[:, -1].clone()  # a view would be saved with all that it is a view of


def _auxiliary(each: CapturedRow) -> Tensor:
    return each.states[:, :-1].flatten(1).clone()


def _save(tensors: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:  # given a path, torch would write the path's name into the file
        torch.save(tensors, file)


def _write_specforge(each: CapturedRow, path: Path) -> None:
    states = {"hidden_state": _last(each)[None], "aux_hidden_state": _auxiliary(each)[None]}
    _save({"input_ids": _ids(each), "loss_mask": _mask(each)} | states, path)


def _write_modelopt(each: CapturedRow, path: Path) -> None:
    states = {"hidden_states": _last(each), "aux_hidden_states": _auxiliary(each)}
    named = {"conversation_id": each.row.row_id}
    _save({"input_ids": _ids(each), "loss_mask": _mask(each)} | states | named, path)


def _write_speculators(each: CapturedRow, path: Path) -> None:
    save_file({"token_ids": _ids(each), "hidden_states": each.states.clone()}, path)
