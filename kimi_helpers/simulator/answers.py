"""A completion as a host returns it: the steps of the host's serving stack, and its counts."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kimi_helpers.formats import BEGIN_ARGUMENTS, BEGIN_SECTION, END_THINK
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import Host
from kimi_helpers.simulator.serving_stack import Pieces, ToolCall
from kimi_helpers.vocabulary import Vocabulary

CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True)
class Answer:
    """A completion as a host returns it.

    Attributes:
        reasoning: pieces of the reasoning; none where it is empty or not parsed.
        content: pieces of the content.
        calls: the tool calls.
        finish_reason: `stop`, `tool_calls` or `length`.
        completion_tokens: the billed count.
        reasoning_tokens: how many of the ids the host takes for reasoning.
    """

    reasoning: Pieces
    content: Pieces
    calls: tuple[ToolCall, ...]
    finish_reason: str
    completion_tokens: int
    reasoning_tokens: int


def answer(host: Host, vocabulary: Vocabulary, completion: Completion, streamed: bool = False) -> Answer:
    """Run a completion through a host's serving stack."""
    ids = completion.token_ids[:-1] if completion.ended else completion.token_ids
    pieces = host.decode(vocabulary, ids)
    cut = (host.cut_streamed_reasoning if streamed else None) or host.cut_reasoning
    reasoning, rest = cut(pieces) if completion.thinking else ((), pieces)
    content, calls = host.cut_tools(rest)
    return Answer(
        reasoning=host.trim_reasoning(reasoning),
        content=host.trim_content(content),
        calls=_rewritten(host, calls, ids),
        finish_reason=("tool_calls" if calls else "stop") if completion.ended else "length",
        completion_tokens=_billed(host, vocabulary, completion),
        reasoning_tokens=_reasoning_tokens(host, vocabulary, ids, reasoning),
    )


def _rewritten(host: Host, calls: Sequence[ToolCall], ids: Sequence[int]) -> tuple[ToolCall, ...]:
    """The calls with the host's ids and arguments. Made-up ids are the same whenever the model samples the same."""
    rewritten = []
    for index, call in enumerate(calls):
        digits = hashlib.sha256(repr((index, ids)).encode()).hexdigest()
        id, arguments = host.write_id(call.id, digits), host.write_arguments(call.arguments)
        rewritten.append(replace(call, id=id, arguments=arguments))
    return tuple(rewritten)


def _billed(host: Host, vocabulary: Vocabulary, completion: Completion) -> int:
    count = len(completion.token_ids)
    if completion.ended and not host.counts_end:
        count -= 1
    if completion.forced and not host.counts_forced_prefix:
        count -= _forced_prefix(vocabulary, completion.token_ids)
    return count


def _forced_prefix(vocabulary: Vocabulary, ids: Sequence[int]) -> int:
    """How many ids lie between the beginning of the tool section and the first arguments, marks included."""
    section, arguments = vocabulary.special_id(BEGIN_SECTION), vocabulary.special_id(BEGIN_ARGUMENTS)
    if section not in ids:
        return 0
    behind = ids[ids.index(section) :]
    return behind.index(arguments) + 1 if arguments in behind else len(behind)


def _reasoning_tokens(host: Host, vocabulary: Vocabulary, ids: Sequence[int], reasoning: Pieces) -> int:
    if not reasoning:
        return 0
    if host.estimates_reasoning:
        return len("".join(reasoning)) // CHARACTERS_A_TOKEN
    return _count_reasoning(vocabulary, ids)


def _count_reasoning(vocabulary: Vocabulary, ids: Sequence[int]) -> int:
    """Ids up to and with `</think>`, or up to a tool section: one more than the text's, as most hosts count."""
    end, section = vocabulary.special_id(END_THINK), vocabulary.special_id(BEGIN_SECTION)
    for place, id in enumerate(ids):
        if id == end:
            return place + 1
        if id == section:
            return place
    return len(ids)
