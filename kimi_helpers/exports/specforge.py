"""SpecForge: pre-tokenised prompts or conversations, an object a line, and `vocab_mapping.pt`."""

import json
from pathlib import Path

import torch

from kimi_helpers.exports.conventions import row_groups, vocabulary_of_set
from kimi_helpers.exports.conversations import Exported, export_conversations
from kimi_helpers.set_tasks import SPLITS
from kimi_helpers.workspace import replaced_whole


def export_specforge(folder: Path, out: Path, draft_size: int = 32_000) -> list[Path]:
    """Write `train.jsonl`, `evaluation.jsonl` and `vocab_mapping.pt`, each whole.

    A line holds `id`, `input_ids` and `loss_mask`, which SpecForge's online prompt builder takes without rendering.
    """
    written = []
    for split in SPLITS:
        path = out / f"{split}.jsonl"
        with replaced_whole(path) as beside, beside.open("w") as file:
            for table in row_groups(folder, split):
                for row in table.select(["row_id", "input_ids", "loss_mask"]).to_pylist():
                    line = {"id": row["row_id"], "input_ids": row["input_ids"], "loss_mask": row["loss_mask"]}
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")
        written.append(path)
    return [*written, _write_maps(folder, out, draft_size)]


def export_specforge_conversations(
    folder: Path, out: Path, draft_size: int = 32_000, tokenizer: str | None = None
) -> Exported:
    """Write the conversations of a set, with their reasoning, and `vocab_mapping.pt`.

    Train with `train_only_last_turn`: a row is one turn, and those before it are its prompt.
    """
    exported = export_conversations(folder, out, lambda id, said: {"id": id, "conversations": said}, tokenizer)
    _write_maps(folder, out, draft_size)
    return exported


def _write_maps(folder: Path, out: Path, draft_size: int) -> Path:
    draft, path = vocabulary_of_set(folder, draft_size), out / "vocab_mapping.pt"
    with replaced_whole(path) as beside:
        torch.save({"d2t": torch.from_numpy(draft.d2t), "t2d": torch.from_numpy(draft.t2d)}, beside)
    return path
