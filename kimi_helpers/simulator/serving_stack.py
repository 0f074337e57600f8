"""The steps of a serving stack between sampled token ids and the fields of a reply: detokenisers and parsers.

Text travels as pieces: what each token added to the decoded text, in order, so that a streamed chunk falls on
token borders; the text is their join. Every step is a plain function, and a host is a choice of them. What is done
to a tool call after it was parsed stands in `call_rewriting`.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from kimi_helpers.formats import (
    BEGIN_ARGUMENTS,
    BEGIN_CALL,
    BEGIN_SECTION,
    BEGIN_THINK,
    END_CALL,
    END_THINK,
)
from kimi_helpers.vocabulary import Vocabulary

Pieces = tuple[str, ...]

_END_OF_REASONING = re.compile(rf"{re.escape(END_THINK)}|(?={re.escape(BEGIN_SECTION)})")
_CALL = re.compile(
    rf"{re.escape(BEGIN_CALL)}\s*(.*?)\s*{re.escape(BEGIN_ARGUMENTS)}(.*?){re.escape(END_CALL)}", re.DOTALL
)


@dataclass(frozen=True)
class ToolCall:
    """A tool call as the parser reads it.

    Attributes:
        id: the sampled id, `functions.NAME:INDEX`, without blanks around it.
        name: the function's name, read from the id.
        arguments: pieces of the argument text, as sampled.
    """

    id: str
    name: str
    arguments: Pieces


def part(pieces: Iterable[str], start: int, end: int) -> Pieces:
    """The pieces of characters `start` to `end` of the joined text; empty pieces are left out."""
    cut = []
    place = 0
    for piece in pieces:
        if place >= end:
            break
        next_place = place + len(piece)
        if next_place > start:
            kept = piece if start <= place and next_place <= end else piece[max(start - place, 0) : end - place]
            if kept:
                cut.append(kept)
        place = next_place
    return tuple(cut)


@lru_cache(maxsize=1 << 16)
def token_bytes(vocabulary: Vocabulary, id: int) -> bytes:
    """The bytes of one token, kept: replies repeat their tokens."""
    return vocabulary.token_bytes(id)


def decode_faithfully(vocabulary: Vocabulary, ids: Sequence[int]) -> Pieces:
    """Detokenise as `Vocabulary.decode` does, token by token.

    The bytes of an unfinished character are held back until it is whole; what is left of one at the end
    becomes U+FFFD, as SGLang's detokeniser does when a reply was cut by its length.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(token_bytes(vocabulary, id)) for id in ids]
    return (*pieces, decoder.decode(b"", final=True))


def decode_with_blanks(vocabulary: Vocabulary, ids: Sequence[int]) -> Pieces:
    """Detokenise as transformers' slow tokenizers do with `spaces_between_special_tokens=True`.

    Every added token and every run of ordinary tokens between two of them is a text of its own, and one
    blank joins neighbours: none stands before the first text or after the last (vllm-project/vllm#33457).
    """
    pieces: list[str] = []
    for added, group in groupby(ids, key=vocabulary.special_ids.__contains__):
        run = list(group)
        texts = (
            [(token_bytes(vocabulary, id).decode(),) for id in run] if added else [decode_faithfully(vocabulary, run)]
        )
        for text in texts:
            pieces += (" ", *text) if pieces else text
    return tuple(pieces)


def cut_reasoning(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """Reasoning and the rest, cut as vLLM's Kimi K2 reasoning parser cuts.

    `<think>` is dropped at the very front only. Reasoning ends at the first `</think>`, which is dropped, or where
    a tool section begins; without either all is reasoning. Nothing is stripped.
    """
    text = "".join(pieces)
    start = len(BEGIN_THINK) if text.startswith(BEGIN_THINK) else 0
    border = _END_OF_REASONING.search(text, start)
    if border is None:
        return part(pieces, start, len(text)), ()
    return part(pieces, start, border.start()), part(pieces, border.end(), len(text))


def leave_reasoning(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """No reasoning parser: think tokens and reasoning stay in the content."""
    return (), pieces


def cut_reasoning_stripped(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """Reasoning and the rest of a whole reply, as SGLang's reasoning parser cut them before sgl-project/sglang#24251.

    Every `<think>` is taken out, the whole is stripped, and so is what follows `</think>`; so the reasoning keeps its
    end, unless it was cut by its length or a tool section began in it. Where tokens ended is lost.
    """
    text = "".join(pieces).replace(BEGIN_THINK, "").strip()
    reasoning, closed, rest = text.partition(END_THINK)
    if closed:
        return _whole(reasoning), _whole(rest.strip())
    reasoning, section, calls = text.partition(BEGIN_SECTION)
    return _whole(reasoning.strip()), _whole(section + calls)


def cut_reasoning_right_stripped(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """Reasoning and the rest of a stream, as SGLang's reasoning parser cut them before sgl-project/sglang#24251.

    The end of the reasoning is stripped when its border comes, and nothing else: what was streamed cannot be called
    back. (It strips the chunk that the border is in; here that chunk holds all blanks before the border.)
    """
    reasoning, rest = cut_reasoning(pieces)
    return (strip_right(reasoning) if _END_OF_REASONING.search("".join(pieces)) else reasoning), rest


def _whole(text: str) -> Pieces:
    return (text,) if text else ()


def cut_tool_section(pieces: Pieces) -> tuple[Pieces, tuple[ToolCall, ...]]:
    """Content and tool calls: content is what stands before the tool section.

    A call that was cut before its end is dropped, and so is text behind the section, as vLLM's parser does.
    """
    text = "".join(pieces)
    start = text.find(BEGIN_SECTION)
    if start < 0:
        return pieces, ()
    calls = tuple(
        ToolCall(found[1], _function_name(found[1]), part(pieces, *found.span(2)))
        for found in _CALL.finditer(text, start)
    )
    return part(pieces, 0, start), calls


def cut_at_first_call(pieces: Pieces) -> tuple[Pieces, tuple[ToolCall, ...]]:
    """Content and tool calls, where the mark of the section is taken out but the text behind it is content up to the
    first call: a detokeniser's blanks on both sides of the mark are left, as Avian's streams show them.
    """
    text = "".join(pieces)
    content, calls = cut_tool_section(pieces)
    behind = text.find(BEGIN_SECTION) + len(BEGIN_SECTION)
    if behind < len(BEGIN_SECTION):
        return content, calls
    first = text.find(BEGIN_CALL, behind)
    return content + part(pieces, behind, first if first >= 0 else len(text)), calls


def leave_tools(pieces: Pieces) -> tuple[Pieces, tuple[ToolCall, ...]]:
    """No tool parser: the markup of a tool section stays in the content."""
    return pieces, ()


def _function_name(id: str) -> str:
    return id.removeprefix("functions.").rpartition(":")[0]


def keep(pieces: Pieces) -> Pieces:
    """The text as it was parsed."""
    return pieces


def strip(pieces: Pieces) -> Pieces:
    """The text without the blanks and newlines around it."""
    text = "".join(pieces)
    return part(pieces, len(text) - len(text.lstrip()), len(text.rstrip()))


def strip_left(pieces: Pieces) -> Pieces:
    """The text without the blanks and newlines at its front."""
    text = "".join(pieces)
    return part(pieces, len(text) - len(text.lstrip()), len(text))


def strip_right(pieces: Pieces) -> Pieces:
    """The text without the blanks and newlines at its end."""
    return part(pieces, 0, len("".join(pieces).rstrip()))
