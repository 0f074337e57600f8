"""The bytes of a chat-completions exchange, read as typed bodies; nothing is merged or judged here.

Hosts are not trusted: unknown fields are ignored, fields that matter must have the type they should, and
whatever is wrong is told in a sentence, never raised. The fields are those of OpenRouter's chat schema, with
`reasoning_content` and usage inside the choice as Moonshot's own API has them, and the token ids of vLLM
(`token_ids`, `prompt_token_ids`) and SGLang (`output_ids`).
"""

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kimi_helpers.event_stream import BYTE_ORDER_MARK, EventParser

Transport = Literal["json", "sse"]

DONE = b"[DONE]"

_PADDING = re.compile(rb"[ \t\r\n]+|:[^\r\n]*")
_STREAM_FIELD = re.compile(rb"(?:data|event|id|retry)(?:[:\r\n]|\Z)")

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Byte = Annotated[int, Field(ge=0, le=255)]


class _Wire(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


class TokenDetails(_Wire):
    """`prompt_tokens_details` and `completion_tokens_details`."""

    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class UsageBody(_Wire):
    """`usage`; Moonshot has `cached_tokens` at its top."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    cost: float | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None


class ReasoningDetail(_Wire):
    """An entry of `reasoning_details`; only `reasoning.text` has text that the model wrote."""

    type: str | None = None
    index: Count | None = None
    text: str | None = None


class FunctionBody(_Wire):
    """The function of a tool call; arguments are JSON text, possibly a fragment of it."""

    name: str | None = None
    arguments: str | None = None


class CallBody(_Wire):
    """A tool call, or in a stream a fragment of the one that `index` names."""

    index: Count | None = None
    id: str | None = None
    function: FunctionBody | None = None


class MessageBody(_Wire):
    """A `message`, or a `delta` of it."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    tool_calls: list[CallBody] | None = None
    refusal: str | None = None
    function_call: Any = None


class LogprobBody(_Wire):
    """An entry of `logprobs.content`."""

    token: str
    logprob: float
    bytes: list[Byte] | None = None


class LogprobsBody(_Wire):
    """The log probabilities of a choice."""

    content: list[LogprobBody] | None = None


class MetaInfo(_Wire):
    """SGLang's extra block."""

    output_ids: list[Count] | None = None


class ChoiceBody(_Wire):
    """An entry of `choices`."""

    index: Count | None = None
    message: MessageBody | None = None
    delta: MessageBody | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    usage: UsageBody | None = None
    logprobs: LogprobsBody | None = None
    token_ids: list[Count] | None = None
    prompt_token_ids: list[Count] | None = None
    output_ids: list[Count] | None = None
    meta_info: MetaInfo | None = None


class Body(_Wire):
    """A whole JSON reply, or one event of a stream."""

    id: str | None = None
    model: str | None = None
    provider: str | None = None
    choices: list[ChoiceBody] | None = None
    usage: UsageBody | None = None
    prompt_token_ids: list[Count] | None = None


@dataclass(frozen=True)
class StatedError:
    """An error that a body reports, at its top or inside a choice."""

    code: int | str | None
    message: str
    provider: str | None
    in_choice: bool


@dataclass(frozen=True)
class ReceivedBody:
    """What the bytes of one reply hold.

    Attributes:
        transport: None where the bytes are neither JSON nor a stream.
        bodies: those that could be read, in order; one for a JSON reply.
        errors: the errors that any body reports, read or not.
        foreign: there is JSON, but no body has `choices`, or a JSON reply has a choice without a message.
        problem: the first thing that could not be read, or None.
        ended: the reply came to its end: a stream to its `[DONE]`.
    """

    transport: Transport | None
    bodies: tuple[Body, ...]
    errors: tuple[StatedError, ...]
    foreign: bool
    problem: str | None
    ended: bool


class _BodyError(ValueError):
    pass


def read_body(body: bytes) -> ReceivedBody:
    """Read a reply; whether it is JSON or a stream is told by its bytes, after padding and comments."""
    start = len(BYTE_ORDER_MARK) if body.startswith(BYTE_ORDER_MARK) else 0
    while padding := _PADDING.match(body, start):
        start = padding.end()
    if _STREAM_FIELD.match(body, start) or (start == len(body) and b":" in body):
        return _read_stream(body)
    try:
        document = _load_json(body[start:].rjust(len(body)))  # blanks for padding: places stay those of the body
    except _BodyError as error:
        transport: Transport | None = "json" if body[start : start + 1] in (b"{", b"[") else None
        return ReceivedBody(transport, (), (), False, str(error), True)
    return _typed("json", [("", document)], None, ended=True)


def _read_stream(body: bytes) -> ReceivedBody:
    parser = EventParser()
    payloads = parser.feed(body)
    complete = len(payloads)
    documents: list[tuple[str, Any]] = []
    problem, ended = None, False
    for number, payload in enumerate(payloads + parser.close(), 1):
        if payload.strip() == DONE:
            ended = True
        elif payload.strip():
            try:
                documents.append((f"event {number}: ", _load_json(payload)))
            except _BodyError as error:
                # What the end of the stream cut is no fault of its own: the missing [DONE] tells it.
                problem = problem or (f"event {number}: {error}" if number <= complete else None)
            else:
                problem = problem or (f"event {number} comes after [DONE]" if ended else None)
    return _typed("sse", documents, problem, ended)


def _load_json(data: bytes) -> Any:
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _BodyError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        begin = text.strip()[:60]
        found = f"not JSON ({error.msg} at character {error.pos}); it begins {begin!r}" if begin else "it is empty"
        raise _BodyError(found) from None
    except RecursionError:
        raise _BodyError("JSON nested too deeply") from None
    except _BodyError:
        raise
    except ValueError:
        raise _BodyError("a number with too many digits") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _BodyError(f"the key {twice!r} stands twice in one object")
    return document


def _refuse_constant(constant: str) -> NoReturn:
    raise _BodyError(f"{constant} is not JSON")


def _typed(transport: Transport, documents: list[tuple[str, Any]], problem: str | None, ended: bool) -> ReceivedBody:
    bodies = []
    for where, document in documents:
        try:
            body = Body.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(step) for step in first["loc"]) or "the body"
            problem = problem or f"{where}{place}: {first['msg']}"
            continue
        bodies.append(body)
        if transport == "sse" and any(choice.message and not choice.delta for choice in body.choices or ()):
            problem = problem or f"{where}a whole message where a stream has deltas"
    errors = tuple(stated for _, document in documents if (stated := _stated_error(document)))
    foreign = bool(documents) and not any(
        isinstance(document, dict) and "choices" in document for _, document in documents
    )
    if transport == "json":
        foreign = foreign or any(choice.message is None for body in bodies for choice in body.choices or ())
    return ReceivedBody(transport, tuple(bodies), errors, foreign, problem, ended)


def _stated_error(document: Any) -> StatedError | None:
    """The error of a body. Any `error` that is not null counts: a host has no other reason to write one."""
    if not isinstance(document, dict):
        return None
    if document.get("error") is not None:
        return _describe_error(document["error"], in_choice=False)
    if document.get("object") == "error":  # the form of older vLLM
        return _describe_error(document, in_choice=False)
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("error") is not None:
            return _describe_error(choice["error"], in_choice=True)
    return None


def _describe_error(error: Any, in_choice: bool) -> StatedError:
    if not isinstance(error, dict):
        return StatedError(None, error if isinstance(error, str) else "no message", None, in_choice)
    code, message, metadata = error.get("code"), error.get("message"), error.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    raw, provider = metadata.get("raw"), metadata.get("provider_name")
    parts = [part for part in (message, raw) if isinstance(part, str) and part.strip()]
    return StatedError(
        code=code if isinstance(code, int | str) and not isinstance(code, bool) else None,
        message=": ".join(parts) or "no message",
        provider=provider if isinstance(provider, str) and provider else None,
        in_choice=in_choice,
    )
