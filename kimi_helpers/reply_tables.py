"""Exchanges and parsed replies as rows of tables.

A table has one of two forms. `RAW_COLUMNS` hold exchanges as they were kept. `REPLY_COLUMNS` hold the fields of parsed
replies: written once by `parsed_table`, they can be reconstructed again and again without parsing, which takes longer
than reconstruction does. Both forms give the same replies.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import accumulate, pairwise, repeat
from typing import Any

import pyarrow as pa

from kimi_helpers.replies import Failure, FailureKind, Reply, ToolCall, Usage, parse_reply
from kimi_helpers.reply_bodies import Transport

# In the place of a transport error: a whole reply that generation has rejected.
WRONG_PROVIDER = "another provider than the pinned one answered"

RAW_COLUMNS = {
    "source": pa.string(),
    "request": pa.binary(),
    "status": pa.int64(),
    "body": pa.binary(),
    "transport_error": pa.string(),
}
_USAGE_COLUMNS = {
    "prompt_tokens": pa.int64(),
    "completion_tokens": pa.int64(),
    "reasoning_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "cost": pa.float64(),
}
REPLY_COLUMNS = {
    # null bodies where the fields below hold the reply; else the exchange as it was kept
    **RAW_COLUMNS,
    "transport": pa.string(),
    "reasoning": pa.string(),
    "reasoning_field": pa.string(),
    "content": pa.string(),
    "tool_calls": pa.string(),  # JSON: a list of [id, name, arguments]
    "finish_reason": pa.string(),
    "native_finish_reasons": pa.list_(pa.string()),
    "provider": pa.string(),
    "model": pa.string(),
    "generation_id": pa.string(),
    "has_usage": pa.bool_(),
    **_USAGE_COLUMNS,
    "chunk_lengths": pa.list_(pa.int32()),  # of a stream's texts, in characters
}
RAW_SCHEMA, REPLY_SCHEMA = (pa.schema(list(columns.items())) for columns in (RAW_COLUMNS, REPLY_COLUMNS))


@dataclass(frozen=True)
class RawReply:
    """An exchange as it was kept, unparsed.

    Attributes:
        source: the file, or the file and the place in it.
        request: the request's body, or None where it was not kept.
        status: of HTTP, None where unknown.
        body: the response's bytes.
        transport_error: why the exchange broke off, or `WRONG_PROVIDER`; None where it came to its end.
    """

    source: str
    request: bytes | None
    status: int | None
    body: bytes
    transport_error: str | None = None


@dataclass(frozen=True)
class SourcedReply:
    """A reply and where it came from.

    Attributes:
        source: as `RawReply`.
        request: the request's body, or None where it was not kept or is no JSON object.
        outcome: the parsed reply, or why there is none.
    """

    source: str
    request: Mapping[str, Any] | None
    outcome: Reply | Failure


def parse_raw(raw: RawReply) -> SourcedReply:
    """Parse an exchange. Nothing is raised, whatever the bytes; one that broke off is a failure."""
    outcome = parse_reply(raw.body, status=raw.status)
    if raw.transport_error is not None and isinstance(outcome, Reply):
        is_rejected = raw.transport_error == WRONG_PROVIDER
        outcome = Failure(
            kind=FailureKind.WRONG_PROVIDER if is_rejected else FailureKind.STREAM_CUT,
            status=raw.status,
            code=None,
            message=WRONG_PROVIDER if is_rejected else f"the exchange broke off: {raw.transport_error}",
            provider=outcome.provider,
            model=outcome.model,
            generation_id=outcome.generation_id,
            usage=outcome.usage,
            partial=outcome,
            transport=outcome.transport,
        )
    return SourcedReply(raw.source, json_object(raw.request), outcome)


def raw_table(raw: Iterable[RawReply]) -> pa.Table:
    """Exchanges as a table of the columns of `RAW_COLUMNS`."""
    rows = [asdict(each) for each in raw]
    for row in rows:
        row["source"], row["transport_error"] = storable(row["source"]), storable(row["transport_error"])
    return pa.Table.from_pylist(rows, RAW_SCHEMA)


def storable(text: str | None) -> str | None:
    """Text that a column can hold: half a surrogate pair is written as an escape."""
    return text if text is None else text.encode(errors="backslashreplace").decode()


def raw_rows(rows: pa.RecordBatch | pa.Table) -> Iterator[RawReply]:
    """The rows of a table of the columns of `RAW_COLUMNS`."""
    return (RawReply(*values) for values in zip(*_lists(rows, RAW_COLUMNS), strict=True))


def parsed_table(raw: pa.Table) -> pa.Table:
    """A table of `RAW_COLUMNS` as one of `REPLY_COLUMNS`, row for row; one that is parsed already as it is.

    What the columns have no place for keeps its body and is parsed when it is read: failures, log probabilities, ids
    from an engine, and text with half a surrogate pair.
    """
    if is_parsed(raw):
        return raw
    rows = []
    for each in raw_rows(raw):
        outcome = parse_raw(each).outcome
        fields = _reply_fields(outcome) if isinstance(outcome, Reply) else None
        rows.append(asdict(each) | ({"body": None, **fields} if fields else {}))
    return pa.Table.from_pylist(rows, REPLY_SCHEMA)


def _reply_fields(reply: Reply) -> dict[str, Any] | None:
    if reply.logprobs is not None or reply.engine_token_ids is not None or reply.engine_prompt_token_ids is not None:
        return None
    calls = [astuple(call) for call in reply.tool_calls]
    fields = {name: getattr(reply, name) for name in _PLAIN_FIELDS} | {
        "tool_calls": json.dumps(calls) if calls else None,
        "native_finish_reasons": list(reply.native_finish_reasons),
        "has_usage": reply.usage is not None,
        **({name: getattr(reply.usage, name) for name in _USAGE_COLUMNS} if reply.usage else {}),
    }
    if reply.chunk_texts:
        if "".join(reply.chunk_texts) != _text_of(reply.reasoning, reply.content, reply.tool_calls):
            return None
        fields["chunk_lengths"] = list(map(len, reply.chunk_texts))
    try:
        "".join(text for text in (*fields.values(), *reply.native_finish_reasons) if isinstance(text, str)).encode()
    except UnicodeEncodeError:
        return None
    return fields


_PLAIN_FIELDS = (
    *("transport", "reasoning", "reasoning_field", "content", "finish_reason"),
    *("provider", "model", "generation_id"),
)


def _text_of(reasoning: str | None, content: str | None, calls: Iterable[ToolCall]) -> str:
    return "".join([reasoning or "", content or "", *(call.arguments for call in calls)])


def is_parsed(rows: pa.RecordBatch | pa.Table) -> bool:
    """Whether the table has the columns of `REPLY_COLUMNS`."""
    return "transport" in rows.schema.names


def sourced_rows(rows: pa.RecordBatch | pa.Table) -> Iterator[SourcedReply]:
    """The replies of a table of either form."""
    if not is_parsed(rows):
        yield from map(parse_raw, raw_rows(rows))
        return
    for values in zip(*_lists(rows, REPLY_COLUMNS), strict=True):
        source, request, status, body, transport_error, *fields = values
        if body is None:
            yield SourcedReply(source, json_object(request), _reply(*fields))
        else:
            yield parse_raw(RawReply(source, request, status, body, transport_error))


def _reply(
    transport: Transport,
    reasoning: str | None,
    reasoning_field: str | None,
    content: str | None,
    tool_calls: str | None,
    finish_reason: str,
    native_finish_reasons: Sequence[str],
    provider: str | None,
    model: str | None,
    generation_id: str | None,
    has_usage: bool,
    *rest: Any,
) -> Reply:
    *usage, chunk_lengths = rest
    calls = tuple(ToolCall(*call) for call in json.loads(tool_calls)) if tool_calls else ()
    return Reply(
        reasoning=reasoning,
        reasoning_field=reasoning_field,
        content=content,
        tool_calls=calls,
        finish_reason=finish_reason,
        native_finish_reasons=tuple(native_finish_reasons),
        usage=Usage(*usage) if has_usage else None,
        provider=provider,
        model=model,
        generation_id=generation_id,
        logprobs=None,
        engine_token_ids=None,
        engine_prompt_token_ids=None,
        transport=transport,
        chunk_texts=_cut(_text_of(reasoning, content, calls), chunk_lengths) if chunk_lengths else (),
    )


def _cut(text: str, lengths: Iterable[int]) -> tuple[str, ...]:
    return tuple(text[start:end] for start, end in pairwise(accumulate(lengths, initial=0)))


def _lists(rows: pa.RecordBatch | pa.Table, names: Iterable[str]) -> list[Iterable[Any]]:
    """The columns as Python values; a column of nulls costs nothing."""
    columns = (rows.column(name) for name in names)
    return [repeat(None, len(rows)) if column.null_count == len(column) else column.to_pylist() for column in columns]


def json_object(data: bytes | None) -> Mapping[str, Any] | None:
    """A kept request; None where it was not kept or is no JSON object."""
    try:
        value = json.loads(data) if data is not None else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
