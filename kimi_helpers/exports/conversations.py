"""Rows as conversations, for trainers that render and tokenise text themselves.

Text says less than ids. A conversation is written only where its messages, rendered and tokenised as those trainers do
it, give back every id of the row; every other row is left out and counted by its reason (the pre-tokenised exports lose
none). Reasoning is stated wherever the model saw or sampled it, so messages are to be rendered as they stand:
`chat_template.jinja`, written beside them, does so. K2.5's own template would empty the reasoning of the turn to train
on (fw-ai/cookbook#386).

Masks are then the trainers' own. Both supervise the `<think>` that K2.5's prompt supplies, and earlier turns unless
told otherwise (SpecForge's `train_only_last_turn`); Model-Optimizer leaves out the end-of-turn token. SpecForge's Kimi
templates also add a system message where a conversation has none: register one whose `system_prompt` is None.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_helpers.exports.conventions import row_groups
from kimi_helpers.formats import (
    BEGIN_THINK,
    END_THINK,
    END_TURN,
    FORMATS,
    HEADERS,
    MIDDLE,
    SYSTEM_HEADER,
    ModelFormat,
)
from kimi_helpers.merging import read_manifest
from kimi_helpers.set_tasks import SPLITS
from kimi_helpers.training import vocabulary_of
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import replaced_whole, write_whole

TEMPLATE = "chat_template.jinja"
ROLES = ("system", "user", "assistant")

Fields = dict[str, Any]


class NoConversation(ValueError):
    """A row that no conversation states exactly; the message is the reason."""


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        rows: how many conversations.
        left_out: reason -> rows that are not among them.
    """

    rows: int
    left_out: dict[str, int]


def export_conversations(
    folder: Path, out: Path, as_line: Callable[[str, list[Fields]], Fields], tokenizer: str | None = None
) -> Exported:
    """Write `train.jsonl`, `evaluation.jsonl` and `chat_template.jinja`, each whole.

    Args:
        folder: a training set.
        as_line: a row's id and its messages as the trainer's object.
        tokenizer: as `load_vocabulary`'s `source`.

    Raises:
        ValueError: the set holds rows of formats that one template cannot render.
    """
    template = template_of(_layouts(folder))
    rows, left_out = 0, Counter[str]()
    for split in SPLITS:
        with replaced_whole(out / f"{split}.jsonl") as beside, beside.open("w", encoding="utf-8") as file:
            for table in row_groups(folder, split):
                for row in table.select(["row_id", "input_ids", "format"]).to_pylist():
                    vocabulary = vocabulary_of(tokenizer, row["format"])
                    try:
                        messages = conversation_of(row["input_ids"], vocabulary, FORMATS[row["format"]])
                    except NoConversation as reason:
                        left_out[str(reason)] += 1
                        continue
                    file.write(json.dumps(as_line(row["row_id"], messages)) + "\n")
                    rows += 1
    write_whole(out / TEMPLATE, template.encode())
    return Exported(rows, dict(left_out.most_common()))


def _layouts(folder: Path) -> list[ModelFormat]:
    groups = read_manifest(folder)["groups"]
    return [FORMATS[name] for name in sorted({group["format"] for split in SPLITS for group in groups[split]})]


def template_of(layouts: Sequence[ModelFormat]) -> str:
    """A chat template that renders messages as they stand, for sets of one kind of format.

    Raises:
        ValueError: there are several kinds: of some the assistant's turns hold a think section, of others not.
    """
    if any(layout.turns != "kimi" for layout in layouts) or len({layout.thinks for layout in layouts}) != 1:
        names = ", ".join(layout.name for layout in layouts)
        raise ValueError(
            f"no single chat template renders {names}: make a set of one format, or use a pre-tokenised export."
        )
    headers = {"system": SYSTEM_HEADER, **HEADERS}
    think = f"{BEGIN_THINK}{{{{ message.reasoning_content or '' }}}}{END_THINK}" if layouts[0].thinks else ""
    lines = [
        "{%- for message in messages -%}",
        f"{{{{ {json.dumps(headers)}[message.role] }}}}{{{{ message.role }}}}{MIDDLE}",
        f"{{%- if message.role == 'assistant' -%}}{think}{{%- endif -%}}",
        f"{{{{ message.content }}}}{END_TURN}",
        "{%- endfor -%}",
    ]
    return "\n".join(lines)


def conversation_of(ids: Sequence[int], vocabulary: Vocabulary, layout: ModelFormat) -> list[Fields]:
    """The messages that a row's ids lay out, the sampled turn last.

    Args:
        ids: prompt and completion, shape [n].

    Returns:
        Messages with `role` and `content`, and `reasoning_content` where the turn has any.

    Raises:
        NoConversation: rendered as they stand and tokenised, they would not give back the ids.
    """
    end = vocabulary.special_id(END_TURN)
    if not ids or ids[-1] != end:
        raise NoConversation("cut by its length: a conversation ends its turns")
    messages = [_message(turn, vocabulary, layout) for turn in _turns(ids, end)]
    if vocabulary.encode(rendered(messages, layout), specials=True) != list(ids):
        raise NoConversation("its text makes other ids")
    return messages


def rendered(messages: Sequence[Fields], layout: ModelFormat) -> str:
    """Messages as they stand, all reasoning kept: what `template_of` renders."""
    parts = []
    for message in messages:
        role = message["role"]
        parts += [HEADERS.get(role, SYSTEM_HEADER), role, MIDDLE]
        if role == "assistant" and layout.thinks:
            parts += [BEGIN_THINK, message.get("reasoning_content", ""), END_THINK]
        parts += [message["content"], END_TURN]
    return "".join(parts)


def _turns(ids: Sequence[int], end: int) -> list[list[int]]:
    """The ids of each turn, without its end."""
    turns: list[list[int]] = [[]]
    for id in ids:
        if id == end:
            turns.append([])
        else:
            turns[-1].append(id)
    return turns[:-1]


def _message(turn: list[int], vocabulary: Vocabulary, layout: ModelFormat) -> Fields:
    header, body = _parted(turn, vocabulary.special_id(MIDDLE), "a turn without a header")
    role = _text(header[1:], vocabulary)
    if role not in ROLES:
        raise NoConversation("tools or named turns: their messages are not stated")
    if role != "assistant" or not layout.thinks:
        return {"role": role, "content": _text(body, vocabulary)}
    thought, content = _parted(body, vocabulary.special_id(END_THINK), "a think section that is not closed")
    reasoning = _text(thought[1:], vocabulary)
    told = {"reasoning_content": reasoning} if reasoning else {}
    return {"role": role, "content": _text(content, vocabulary), **told}


def _parted(ids: list[int], border: int, reason: str) -> tuple[list[int], list[int]]:
    if border not in ids:
        raise NoConversation(reason)
    place = ids.index(border)
    return ids[:place], ids[place + 1 :]


def _text(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    if not vocabulary.special_ids.isdisjoint(ids):
        raise NoConversation("special tokens inside a message")
    try:
        text = vocabulary.decode_bytes(ids).decode()
    except UnicodeDecodeError:
        raise NoConversation("a message that is not UTF-8") from None
    if vocabulary.spelling.search(text):
        raise NoConversation("special tokens spelled in a message: rendered, they would become tokens")
    return text
