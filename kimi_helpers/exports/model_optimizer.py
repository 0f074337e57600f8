"""Model-Optimizer: conversations, an object a line, from which it computes hidden states."""

from pathlib import Path

from kimi_helpers.exports.conversations import Exported, export_conversations


def export_model_optimizer(folder: Path, out: Path, tokenizer: str | None = None) -> Exported:
    """Write the conversations of a set: lines of `conversation_id`, which names the state's file, and `conversations`.

    Give the folder's `chat_template.jinja` as `--chat-template`.
    """
    return export_conversations(folder, out, lambda id, said: {"conversation_id": id, "conversations": said}, tokenizer)
