"""The simulated hosts: what each does to the text and the count of one and the same completion.

A host is a row of `HOSTS`: one function for each step of its serving stack (`serving_stack`), a field name, a
counting rule and prices.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from kimi_helpers.formats import BEGIN_SECTION, END_THINK
from kimi_helpers.simulator.serving_stack import (
    Pieces,
    ToolCall,
    cut_reasoning,
    cut_tool_section,
    decode_faithfully,
    decode_with_blanks,
    keep,
    leave_reasoning,
    strip,
)
from kimi_helpers.vocabulary import Vocabulary


@dataclass(frozen=True)
class Host:
    """A simulated host.

    Attributes:
        slug: its name in a request's `provider.only`; it stands for all its endpoints.
        name: the display name in `provider` of a reply.
        decode: token ids, without the end token, to pieces of text.
        cut_reasoning: pieces to pieces of reasoning and the rest.
        trim: what is done to the text of the reasoning and of the content.
        reasoning_field: where a message carries the reasoning.
        counts_end: whether `completion_tokens` counts the end token.
        prompt_price: dollars per prompt token, a decimal in a string as the listing has it.
        completion_price: dollars per completion token.
        quantization: as the endpoint listing calls it.
    """

    slug: str
    name: str
    decode: Callable[[Vocabulary, Sequence[int]], Pieces] = decode_faithfully
    cut_reasoning: Callable[[Pieces], tuple[Pieces, Pieces]] = cut_reasoning
    trim: Callable[[Pieces], Pieces] = keep
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"
    counts_end: bool = True
    prompt_price: str = "0.00000044"
    completion_price: str = "0.000002"
    quantization: str = "int4"

    @property
    def tag(self) -> str:
        """The full slug of its endpoint, e.g. `faithful/int4`."""
        return f"{self.slug}/{self.quantization}"


HOSTS = (
    Host("faithful", "Loopback Faithful"),
    Host("blanks", "Loopback Blanks", decode=decode_with_blanks, completion_price="0.0000022"),
    Host(
        "reasoning-content", "Loopback Reasoning Content", reasoning_field="reasoning_content", prompt_price="0.0000005"
    ),
    Host("think-in-content", "Loopback Think In Content", cut_reasoning=leave_reasoning, prompt_price="0.00000039"),
    Host("end-not-counted", "Loopback End Not Counted", counts_end=False, completion_price="0.00000225"),
    Host("stripped", "Loopback Stripped", trim=strip, prompt_price="0.00000055"),
)


@dataclass(frozen=True)
class Completion:
    """What the model was given and what it sampled: the truth behind a reply.

    Attributes:
        prompt_ids: token ids of the prompt.
        token_ids: the sampled ids, the end token included where it was sampled.
        thinking: whether the reply thinks, so that a host's reasoning parser runs over it.
        ended: whether the last id is the end token; false where `max_tokens` cut the reply.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    thinking: bool
    ended: bool


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


def answer(host: Host, vocabulary: Vocabulary, completion: Completion) -> Answer:
    """Run a completion through a host's serving stack."""
    ids = completion.token_ids[:-1] if completion.ended else completion.token_ids
    pieces = host.decode(vocabulary, ids)
    reasoning, rest = host.cut_reasoning(pieces) if completion.thinking else ((), pieces)
    content, calls = cut_tool_section(rest)
    return Answer(
        reasoning=host.trim(reasoning),
        content=host.trim(content),
        calls=calls,
        finish_reason=("tool_calls" if calls else "stop") if completion.ended else "length",
        completion_tokens=len(completion.token_ids if host.counts_end else ids),
        reasoning_tokens=_count_reasoning(vocabulary, ids) if reasoning else 0,
    )


def _count_reasoning(vocabulary: Vocabulary, ids: Sequence[int]) -> int:
    """Ids up to and with `</think>`, or up to a tool section: one more than the text's, as most hosts count."""
    for place, id in enumerate(ids):
        if id == vocabulary.special_id(END_THINK):
            return place + 1
        if id == vocabulary.special_id(BEGIN_SECTION):
            return place
    return len(ids)


def cost(host: Host, prompt_tokens: int, completion_tokens: int) -> tuple[Decimal, Decimal]:
    """Dollars for the prompt and for the completion."""
    return Decimal(host.prompt_price) * prompt_tokens, Decimal(host.completion_price) * completion_tokens


def allowed_hosts(only: Collection[str]) -> list[Host]:
    """The hosts that a request's `provider.only` allows, in its order; a base slug stands for all its endpoints."""
    return [host for slug in only for host in HOSTS if slug.lower() in (host.slug, host.tag)]
