"""The readings of a reply: the token law of its format and its host's serving stack, run backwards.

A layout is what the model can have sampled, with the open choices in it: special tokens, and slots of text, each with
its possible sources. Special tokens stop merges, so each source is encoded on its own and counts add up; the billed
count then picks among the choices.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Literal

from kimi_helpers.formats import (
    BEGIN_ARGUMENTS,
    BEGIN_CALL,
    BEGIN_SECTION,
    BEGIN_THINK,
    END_CALL,
    END_SECTION,
    END_THINK,
    END_TURN,
    ModelFormat,
    Segment,
    Special,
)
from kimi_helpers.replies import Reply, ToolCall
from kimi_helpers.request_terms import Asked
from kimi_helpers.serving_stacks import (
    MOST_SOURCES,
    ServingStack,
    Sources,
    Surroundings,
    argument_sources,
    id_sources,
    text_sources,
)
from kimi_helpers.vocabulary import Vocabulary

MOST_SPELLED = 8

# Sources of one reply's texts, in characters: they bound time and memory, and a reply whose sources are more is never
# exact. One of 8 kB, the usual length, may have a thousand sources a text.
MOST_SOURCE_CHARACTERS = 8_000_000

Kind = Literal["reasoning", "content", "id", "arguments"]
EndToken = Literal["counted", "not counted", "absent"]


@dataclass(frozen=True)
class Field:
    """A piece of a reply's text between two special tokens.

    Attributes:
        kind: the field of the reply it belongs to.
        text: as returned.
        call: the tool call it belongs to, and its place in the reply.
        starts, ends: whether the piece is at the start or the end of the field.
    """

    kind: Kind
    text: str
    call: tuple[int, ToolCall] | None = None
    starts: bool = True
    ends: bool = True


@dataclass(frozen=True)
class Slot:
    """A piece of text the model sampled, with its possible sources, plainest first.

    Attributes:
        kind: the field of the reply it belongs to.
        sources: distinct texts; never empty.
        complete: whether these are all that the stack can have been given.
    """

    kind: Kind
    sources: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True)
class Layout:
    """One way the token law can have laid out a reply.

    Attributes:
        parts: special tokens and slots, in order; the end-of-turn token included where it was sampled.
        end_token: whether that token was sampled, and counted.
        uncounted: the places of parts that the host does not bill (the forced start of a tool call).
        usual: false where the model left the law (a section that it did not close, `</think>` typed for sampled). That
            happens too seldom to be proven by a count: a longer split of a usual layout makes the same.
    """

    parts: tuple[Special | Slot, ...]
    end_token: EndToken
    uncounted: range = range(0)
    usual: bool = True

    @property
    def complete(self) -> bool:
        """Whether every source of every text is listed."""
        return all(part.complete for part in self.parts if isinstance(part, Slot))


def layouts(
    reply: Reply, vocabulary: Vocabulary, format: ModelFormat, stack: ServingStack, asked: Asked
) -> Iterator[Layout]:
    """Every layout that the stack can have returned as this reply, plainest first."""
    if hides_start(reply, stack, asked):
        return
    if format.opening_think == "model":  # it thinks whatever the request says
        asked = replace(asked, thinking=None)
    for body, usual in _bodies(reply, vocabulary, format, stack, asked):
        parts = _with_sources(body, reply, stack, asked)
        if parts is None:
            continue
        uncounted = _forced_parts(parts) if asked.forced_call and not stack.counts_forced else range(0)
        for end_token in _end_options(reply, stack, asked):
            ended = () if end_token == "absent" else (Special(END_TURN),)
            yield Layout((*parts, *ended), end_token, uncounted, usual)


def hides_start(reply: Reply, stack: ServingStack, asked: Asked) -> bool:
    """Whether the forced start of a call may have been sampled that is neither counted nor returned."""
    cut_before_calls = reply.finish_reason == "length" and not reply.tool_calls
    return asked.forced_call and not stack.counts_forced and cut_before_calls


def _end_options(reply: Reply, stack: ServingStack, asked: Asked) -> tuple[EndToken, ...]:
    if reply.finish_reason != "length":
        return ("counted",) if stack.counts_end else ("not counted",)
    # of a cut reply the end token can only be the token that the limit fell on
    if stack.counts_end:
        return ("absent", "counted")
    reached = asked.limit is not None and reply.usage is not None and reply.usage.completion_tokens == asked.limit
    return ("absent",) if reached else ("absent", "not counted")


def _forced_parts(parts: Sequence[Special | Slot]) -> range:
    """The parts from the start of the tool section to that of the first call's arguments."""
    if Special(BEGIN_ARGUMENTS) not in parts or Special(BEGIN_SECTION) not in parts:
        return range(0)  # none was called, or a leaked mark is read as text
    return range(parts.index(Special(BEGIN_SECTION)), parts.index(Special(BEGIN_ARGUMENTS)) + 1)


def _bodies(
    reply: Reply, vocabulary: Vocabulary, format: ModelFormat, stack: ServingStack, asked: Asked
) -> Iterator[tuple[list[Special | Field], bool]]:
    """The layouts of the token law, before the steps of the stack are undone, and whether they are usual."""
    cut = reply.finish_reason == "length"
    for reasoning, content, sections in _spellings(reply, vocabulary):
        for thinks in _thinking_options(reply, format, asked.thinking):
            for head, usual in _heads(reply, format, stack, reasoning, content, thinks):
                for missing in _missing_closers(reply, stack):
                    yield [*head, *sections[: len(sections) - missing]], usual and (cut or not missing)
                if stack.blanks and cut and not sections:
                    # cut behind a token that the parser took away, whose blank stays
                    yield [*head, Special(BEGIN_SECTION)], usual


def _spellings(
    reply: Reply, vocabulary: Vocabulary
) -> Iterator[tuple[list[Special | Field], list[Special | Field], list[Special | Field]]]:
    """Every reading of the special tokens that the texts spell: each as the token, or as ordinary text.

    Nothing is read where more than `most_spelled` are.
    """
    fields = _fields(reply)
    split = [_split(field, vocabulary) for field in fields]
    spelled = sum(len(parts) // 2 for parts in split)
    if not spelled:
        whole: list[list[Special | Field]] = [[field] for field in fields]
        yield whole[0], whole[1], _section(reply.tool_calls, whole[2:])
        return
    if spelled > most_spelled(reply):
        return
    for choice in product((True, False), repeat=spelled):
        is_token = iter(choice)
        reasoning, content, *arguments = (
            _joined(field, [part if isinstance(part, str) or next(is_token) else part.text for part in parts])
            for field, parts in zip(fields, split, strict=True)
        )
        yield reasoning, content, _section(reply.tool_calls, arguments)


def _fields(reply: Reply) -> list[Field]:
    """The texts in which special tokens can be spelled."""
    fields = [Field("reasoning", reply.reasoning or ""), Field("content", reply.content or "")]
    return fields + [Field("arguments", call.arguments, (place, call)) for place, call in enumerate(reply.tool_calls)]


def count_spelled(reply: Reply, vocabulary: Vocabulary) -> int:
    """How many special tokens the texts of a reply spell."""
    return sum(len(vocabulary.spelling.findall(field.text)) for field in _fields(reply))


def most_spelled(reply: Reply) -> int:
    """How many may be, before there are too many readings to try, or so many that some would fit a count by chance."""
    return min(MOST_SPELLED, _most_sources(reply).bit_length() - 1)


def _most_sources(reply: Reply) -> int:
    """How many sources may be listed for each text of a reply: at least one."""
    return max(1, MOST_SOURCE_CHARACTERS // max(1, sum(len(field.text) for field in _fields(reply))))


def _split(field: Field, vocabulary: Vocabulary) -> list[Segment]:
    """A field's text cut at the spellings of named special tokens."""
    if not any(pattern.search(field.text) for pattern in _spellings_by_head(vocabulary)):
        return [field.text]
    parts: list[Segment] = []
    position = 0
    for match in vocabulary.spelling.finditer(field.text):
        parts += [field.text[position : match.start()], Special(match.group())]
        position = match.end()
    return [*parts, field.text[position:]]


@cache
def _spellings_by_head(vocabulary: Vocabulary) -> tuple[re.Pattern[str], ...]:
    """A pattern for each first character that spellings have: alternatives with one are found much faster."""
    by_head: dict[str, list[str]] = {}
    for text in vocabulary.named:
        by_head.setdefault(text[0], []).append(re.escape(text))
    return tuple(re.compile("|".join(escaped)) for escaped in by_head.values())


def _joined(field: Field, parts: Sequence[Segment]) -> list[Special | Field]:
    """Parts of a field with neighbouring texts made one."""
    joined: list[Special | Field] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Special):
            joined.append(part)
        elif isinstance(last, Field):
            joined[-1] = replace(last, text=last.text + part)
        else:
            joined.append(replace(field, text=part))
    return [
        replace(part, starts=place == 0, ends=place == len(joined) - 1) if isinstance(part, Field) else part
        for place, part in enumerate(joined)
    ]


def _section(calls: Sequence[ToolCall], arguments: Sequence[list[Special | Field]]) -> list[Special | Field]:
    if not calls:
        return []
    section: list[Special | Field] = [Special(BEGIN_SECTION)]
    for place, (call, text) in enumerate(zip(calls, arguments, strict=True)):
        section += [Special(BEGIN_CALL), Field("id", call.id, (place, call)), Special(BEGIN_ARGUMENTS)]
        section += [*text, Special(END_CALL)]
    return [*section, Special(END_SECTION)]


def _thinking_options(reply: Reply, format: ModelFormat, asked: bool | None) -> list[bool]:
    """Whether the model thought: told by the format, the request, or the reply; else both."""
    if format.opening_think == "model":
        return [True]
    if format.opening_think == "nobody" or asked is False:
        return [] if reply.reasoning else [False]
    return [True] if asked or reply.reasoning else [True, False]


def _heads(
    reply: Reply,
    format: ModelFormat,
    stack: ServingStack,
    reasoning: list[Special | Field],
    content: list[Special | Field],
    thinks: bool,
) -> Iterator[tuple[list[Special | Field], bool]]:
    """What stands before the tool section, and whether a model usually writes it so."""
    opening: list[Special | Field] = [Special(BEGIN_THINK)] if thinks and format.opening_think == "model" else []
    if not thinks:
        yield content, True
    elif stack.parses_reasoning:
        if _may_be_open(reply, stack):
            yield [*opening, *reasoning], True
        yield [*opening, *reasoning, Special(END_THINK), *content], True
        if Special(END_THINK) in content:
            yield [*opening, *_closed_by_typing(reasoning, content)], False
    elif not reply.reasoning:
        head = _left_in_content(content, opening)
        closes = head is not None and Special(END_THINK) in head
        if head is not None and (closes or reply.tool_calls or reply.finish_reason == "length"):
            yield head, closes or not any(isinstance(part, Field) and END_THINK in part.text for part in head)


def _closed_by_typing(reasoning: list[Special | Field], content: list[Special | Field]) -> list[Special | Field]:
    """The think section where the parser, which searches text, cut at a `</think>` that the model had typed."""
    *before, last = reasoning
    first, *after = content
    if not isinstance(last, Field) or not isinstance(first, Field):  # a field begins and ends in text
        raise TypeError("a field's parts begin and end in text")
    return [*before, replace(last, text=last.text + END_THINK + first.text, ends=False), *after]


def _may_be_open(reply: Reply, stack: ServingStack) -> bool:
    """Whether `</think>` may not have been sampled: a tool section, or a length cut, can come before it."""
    if stack.blanks and stack.cuts_at_call and reply.content == " ":
        return True  # the blank between section and call is all the content there is
    return not reply.content and bool(reply.tool_calls or reply.finish_reason == "length")


def _left_in_content(content: list[Special | Field], opening: list[Special | Field]) -> list[Special | Field] | None:
    """The think section as it stands in the content, with its own tokens; None where it does not open."""
    if not opening:
        return content
    blank, *rest = content
    opens = isinstance(blank, Field) and not blank.text and rest[:1] == opening
    return rest if opens else None


def _missing_closers(reply: Reply, stack: ServingStack) -> tuple[int, ...]:
    """How many tokens may be missing at the end of the tool section, likeliest first.

    A length cut can fall there, and models end their turn there (MoonshotAI/K2-Vendor-Verifier#12).
    """
    if not reply.tool_calls:
        return (0,)
    most = 1 if stack.drops_open_calls else 2
    counts = range(most, -1, -1) if reply.finish_reason == "length" else range(most + 1)
    return tuple(counts)


def _with_sources(
    body: Sequence[Special | Field], reply: Reply, stack: ServingStack, asked: Asked
) -> list[Special | Slot] | None:
    """The body with each text's sources; None where the stack cannot have returned one of them."""
    parts: list[Special | Slot] = []
    strips, most = stack.strips(reply.transport, asked.thinking), _most_sources(reply)
    for place, part in enumerate(body):
        if isinstance(part, Special):
            parts.append(part)
            continue
        trimmed = part.kind == "arguments" and stack.trims_arguments
        first, last = place == 0, place == len(body) - 1
        # parsers take `<think>` away first
        front = "text start" in strips and all(before == Special(BEGIN_THINK) for before in body[:place])
        around = Surroundings(
            after_token=not first,
            before_token=not last,
            stripped_start=front or (part.starts and (trimmed or f"{part.kind} start" in strips)),
            stripped_end=(part.ends and (trimmed or f"{part.kind} end" in strips)) or (last and "text end" in strips),
            before_section=part.kind == "content" and part.ends and bool(reply.tool_calls),
            begins_blank=part.kind == "reasoning" and part.starts,
        )
        sources = _sources(part, stack, around, asked, most)
        if not sources.texts:
            return None
        parts.append(Slot(part.kind, sources.texts, sources.complete))
    return parts


def _sources(field: Field, stack: ServingStack, around: Surroundings, asked: Asked, most: int) -> Sources:
    if field.kind == "id" and field.call:
        place, call = field.call
        return Sources(id_sources(call.id, call.name, (place, place + asked.earlier_calls), stack))
    most = min(most, MOST_SOURCES)
    if field.kind == "arguments" and field.starts and field.ends:
        return argument_sources(field.text, stack, around, most)
    return text_sources(field.text, stack, around, most)
