"""Evidence that is better than a count: ids that the engine returned, and the bytes of each sampled token."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

from kimi_helpers.count_doubts import LOST_BYTES
from kimi_helpers.formats import END_THINK, END_TURN, Special
from kimi_helpers.reading_search import Choices, packed
from kimi_helpers.readings import Layout, Slot
from kimi_helpers.replies import Reply
from kimi_helpers.vocabulary import Vocabulary, reference_ids

Split = Literal["canonical", "same length", "other length"]
"""Whether ids are the tokenizer's own split of their text, or another, into as many tokens or not."""


def completed_ids(ids: Sequence[int], layouts: Sequence[Layout], vocabulary: Vocabulary) -> list[int] | None:
    """`ids`, ended by the end-of-turn token where they lack it, if they spell a layout; else None.

    Raises:
        ValueError: an id is outside the vocabulary.
    """
    text = vocabulary.decode(ids)
    end = vocabulary.special_id(END_TURN)
    for layout in layouts:
        if _spells(text, layout):
            return list(ids)
        if layout.end_token != "absent" and list(ids[-1:]) != [end] and _spells(text + END_TURN, layout):
            return [*ids, end]
    return None


def _spells(text: str, layout: Layout) -> bool:
    """Whether a text is that of some reading of a layout."""
    places = {0}
    for part in layout.parts:
        sources = (part.text,) if isinstance(part, Special) else part.sources
        places = {place + len(source) for place in places for source in sources if text.startswith(source, place)}
    return len(text) in places


def listed_ids(reply: Reply, vocabulary: Vocabulary) -> list[int]:
    """Ids of the tokens listed with the reply, where the bytes of each are there and stand for one; else none."""
    if not reply.logprobs:
        return []
    ids = [None if entry.data is None else vocabulary.id_of_bytes(entry.data) for entry in reply.logprobs]
    return [] if None in ids else [id for id in ids if id is not None]


def split_of(ids: Sequence[int], vocabulary: Vocabulary) -> Split | None:
    """How known ids split their text; None where a part of it ends inside a character.

    No count shows a split into as many tokens. So its rate among known ids is how often ids that rest on a count alone
    are not the sampled ones.
    """
    own: list[int] = []
    for is_special, run in groupby(ids, key=vocabulary.special_ids.__contains__):
        given = list(run)
        text = "" if is_special else vocabulary.decode(given)
        if LOST_BYTES in text:
            return None
        own += given if is_special else reference_ids(vocabulary, text)
    if own == list(ids):
        return "canonical"
    return "same length" if len(own) == len(ids) else "other length"


def covers_all(listed: Sequence[int], reply: Reply, layouts: Sequence[Layout], vocabulary: Vocabulary) -> bool:
    """Whether listed tokens that spell a layout are all of the reply's, and not those of its content alone.

    Where thinking may have been on, a list without `</think>` may leave the think section out. A stated count that
    is neither theirs nor one less says that something is left out.
    """
    thought = any(Special(END_THINK) in layout.parts for layout in layouts)
    if thought and vocabulary.special_id(END_THINK) not in listed:
        return False
    billed = reply.usage.completion_tokens if reply.usage else None
    return billed is None or len(listed) - 1 <= billed <= len(listed)


def with_content(choices: Choices, listed: Sequence[int], vocabulary: Vocabulary) -> Choices | None:
    """The choices with the listed ids for the content, where they spell it; else None."""
    parts = choices.layout.parts
    slots = [place for place, part in enumerate(parts) if isinstance(part, Slot) and part.kind == "content"]
    text = vocabulary.decode(listed).removesuffix(END_TURN)
    if len(slots) != 1 or not text:
        return None
    slot = parts[slots[0]]
    if not isinstance(slot, Slot) or text not in slot.sources:
        return None
    end = vocabulary.special_id(END_TURN)
    ids = list(choices.parts)
    ids[slots[0]] = (packed([id for id in listed if id != end]),)
    return replace(choices, parts=tuple(ids))
