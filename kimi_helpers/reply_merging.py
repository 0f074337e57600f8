"""The bodies of one exchange, merged into a `Reply`. A JSON reply is a stream of one body.

Text is joined as it came: nothing is stripped, moved between fields or re-serialised, and null stays apart
from "". Sources: recorded streams, which repeat the finish reason and carry usage beside a choice; OpenRouter's
page on reasoning tokens, for the fragments of `reasoning_details`; vLLM's `return_token_ids`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from kimi_helpers.reply_bodies import Body, CallBody, ChoiceBody, MessageBody, ReceivedBody, Transport, UsageBody


@dataclass(frozen=True)
class ToolCall:
    """A tool call; `arguments` is text as it came, `id` is "" where the host gave none."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Usage:
    """What the host billed: tokens, and `cost` in US dollars. None where it did not say."""

    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    cost: float | None


@dataclass(frozen=True)
class TokenLogprob:
    """A sampled token; `data` is its `bytes` field, None where the host gave none."""

    token: str
    logprob: float
    data: bytes | None


@dataclass(frozen=True)
class Reply:
    """One generation, as the host told it.

    Attributes:
        reasoning: the text of `reasoning_field`, which is `reasoning`, `reasoning_content` or `reasoning_details`.
        finish_reason: `stop`, `tool_calls` or `length`; in the partial reply of a failure also another, or "".
        native_finish_reasons: the distinct ones of the host behind the gateway, in order.
        generation_id: the last one named, because a reseller puts its own before the gateway's.
        logprobs: those of all chunks, in order; which part of the reply they cover is the host's choice.
        engine_token_ids: None also where some chunk of a stream has text and no ids.
        chunk_texts: of a stream, the pieces of reasoning, content and arguments in order of arrival: weak
            evidence of where tokens end.
    """

    reasoning: str | None
    reasoning_field: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    native_finish_reasons: tuple[str, ...]
    usage: Usage | None
    provider: str | None
    model: str | None
    generation_id: str | None
    logprobs: tuple[TokenLogprob, ...] | None
    engine_token_ids: tuple[int, ...] | None
    engine_prompt_token_ids: tuple[int, ...] | None
    transport: Transport
    chunk_texts: tuple[str, ...]


def merge_bodies(exchange: ReceivedBody) -> Reply:
    """What the bodies say together: of the first choice, should there be several.

    Where they contradict each other the first wins, so a caller looks for contradictions too. The finish reason
    is "" where there is none.
    """
    bodies = exchange.bodies
    streamed = exchange.transport == "sse"
    every = all_choices(bodies)
    choices = [choice for choice in every if (choice.index or 0) == (every[0].index or 0)]
    parts = [message_of(choice) for choice in choices]
    field, reasoning = _reasoning(parts)
    return Reply(
        reasoning=reasoning,
        reasoning_field=field,
        content=_joined(part.content for part in parts),
        tool_calls=_tool_calls(parts, streamed),
        finish_reason=_finish_reason(choice.finish_reason for choice in choices),
        native_finish_reasons=distinct(choice.native_finish_reason for choice in choices),
        usage=_usage(bodies),
        provider=next(iter(distinct(body.provider for body in bodies)), None),
        model=next(iter(distinct(body.model for body in bodies)), None),
        generation_id=next((body.id for body in reversed(bodies) if body.id), None),
        logprobs=_logprobs(choices),
        engine_token_ids=_engine_token_ids(choices, streamed),
        engine_prompt_token_ids=_engine_prompt_token_ids(bodies),
        transport="sse" if streamed else "json",
        chunk_texts=tuple(_pieces(parts, field)) if streamed else (),
    )


def all_choices(bodies: Iterable[Body]) -> list[ChoiceBody]:
    """The choices of all bodies, in order of arrival."""
    return [choice for body in bodies for choice in body.choices or ()]


def message_of(choice: ChoiceBody) -> MessageBody:
    """What a choice adds: a delta in a stream, the message in a JSON reply, or nothing."""
    return choice.delta or choice.message or MessageBody()


def _joined(texts: Iterable[str | None]) -> str | None:
    given = [text for text in texts if text is not None]
    return "".join(given) if given else None


def distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    """The names that are not blank, each once, in order of first appearance."""
    return tuple(dict.fromkeys(name for name in names if name))


def reasoning_texts(parts: Sequence[MessageBody]) -> dict[str, str | None]:
    """The text of each reasoning field, in order of priority. Summaries and encrypted details are no text."""
    details: dict[int | None, list[str | None]] = {}
    for part in parts:
        for detail in part.reasoning_details or ():
            if detail.type == "reasoning.text":
                details.setdefault(detail.index, []).append(detail.text)
    return {
        "reasoning": _joined(part.reasoning for part in parts),
        "reasoning_content": _joined(part.reasoning_content for part in parts),
        "reasoning_details": _joined(text for texts in details.values() for text in texts),
    }


def _reasoning(parts: Sequence[MessageBody]) -> tuple[str | None, str | None]:
    """The field that has the reasoning, and its text; a field that is "" only where none has more."""
    texts = [(field, text) for field, text in reasoning_texts(parts).items() if text is not None]
    return next((pair for pair in texts if pair[1]), texts[0] if texts else (None, None))


def _pieces(parts: Iterable[MessageBody], field: str | None) -> Iterable[str]:
    for part in parts:
        yield from (text for text in (reasoning_texts([part]).get(field or ""), part.content) if text)
        for call in part.tool_calls or ():
            if call.function and call.function.arguments:
                yield call.function.arguments


def call_pieces(parts: Iterable[MessageBody], streamed: bool) -> dict[int, list[CallBody]]:
    """The pieces of each tool call, by its place: the index in a stream, the position in a JSON reply."""
    calls: dict[int, list[CallBody]] = {}
    for part in parts:
        for position, call in enumerate(part.tool_calls or ()):
            calls.setdefault((call.index or 0) if streamed else position, []).append(call)
    return dict(sorted(calls.items()))


def _tool_calls(parts: Iterable[MessageBody], streamed: bool) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            id=next((piece.id for piece in pieces if piece.id), ""),
            name=next((piece.function.name for piece in pieces if piece.function and piece.function.name), ""),
            arguments=_joined(piece.function.arguments for piece in pieces if piece.function) or "",
        )
        for pieces in call_pieces(parts, streamed).values()
    )


def _finish_reason(reasons: Iterable[str | None]) -> str:
    """The finish reason of chunks that may repeat it.

    Where two differ, the one that says more was lost wins: text after `length` may be cut, and a later `stop` or
    `tool_calls` (written by a gateway that found a call) does not make it whole (OmniRoute#8210). Between `stop`
    and `tool_calls` the first wins: both say that the model ended its turn.
    """
    ranks = {"error": 0, "content_filter": 1, "length": 3, "stop": 4, "tool_calls": 4}
    return min(distinct(reasons), key=lambda reason: ranks.get(reason, 2), default="")


def _usage(bodies: Iterable[Body]) -> Usage | None:
    """The last usage that has both counts, else the last that says anything: hosts repeat it or put it in a choice."""
    given: list[Usage] = []
    for body in bodies:
        inside = [choice.usage for choice in body.choices or ()]
        given += [_usage_of(usage) for usage in (*inside, body.usage) if usage]
    given = [usage for usage in given if any(value is not None for value in astuple(usage))]
    whole = [usage for usage in given if usage.prompt_tokens is not None and usage.completion_tokens is not None]
    return next(reversed(whole or given), None)


def _usage_of(usage: UsageBody) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = prompt.cached_tokens if prompt else None
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=completion.reasoning_tokens if completion else None,
        cached_tokens=usage.cached_tokens if cached is None else cached,
        cost=usage.cost,
    )


def _logprobs(choices: Iterable[ChoiceBody]) -> tuple[TokenLogprob, ...] | None:
    lists = [choice.logprobs.content for choice in choices if choice.logprobs]
    given = [entries for entries in lists if entries is not None]
    if not given:
        return None
    return tuple(
        TokenLogprob(entry.token, entry.logprob, None if entry.bytes is None else bytes(entry.bytes))
        for entries in given
        for entry in entries
    )


def _engine_token_ids(choices: Sequence[ChoiceBody], streamed: bool) -> tuple[int, ...] | None:
    """vLLM's ids, a chunk's worth a chunk; or SGLang's, of a JSON reply only.

    Ids with a gap are worse than none, so a chunk with text and no ids gives them up.
    """
    if not streamed:
        meta = [choice.meta_info.output_ids for choice in choices if choice.meta_info]
        lists = [ids for choice in choices for ids in (choice.token_ids, choice.output_ids)] + meta
        return next((tuple(ids) for ids in lists if ids is not None), None)
    if all(choice.token_ids is None for choice in choices):
        return None
    if any(choice.token_ids is None and _has_text(message_of(choice)) for choice in choices):
        return None
    return tuple(token for choice in choices for token in choice.token_ids or ())


def _has_text(part: MessageBody) -> bool:
    return bool(part.content or part.tool_calls or any(reasoning_texts([part]).values()))


def _engine_prompt_token_ids(bodies: Iterable[Body]) -> tuple[int, ...] | None:
    lists = [
        ids
        for body in bodies
        for ids in (body.prompt_token_ids, *(choice.prompt_token_ids for choice in body.choices or ()))
    ]
    return next((tuple(ids) for ids in lists if ids is not None), None)
