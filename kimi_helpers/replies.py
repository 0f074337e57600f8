"""Raw bytes of a chat-completions exchange -> a `Reply`, or a classified `Failure`.

A status of 200 is no success: hosts report errors inside a 200 body, inside a choice, or as an event of a stream,
and cut streams without a word. A reply is one only if no error is stated anywhere, the stream came to its
`[DONE]`, one choice ended with a finish reason that is known, and there is text. Text is kept exactly as it came:
nothing is stripped, moved between fields or re-serialised, and null stays apart from "".

Sources: OpenRouter's documentation of errors, streaming and reasoning tokens; recorded replies; the public threads
named where a rule rests on one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kimi_helpers.formats import BEGIN_SECTION, END_THINK
from kimi_helpers.reply_bodies import MessageBody, ReceivedBody, Transport, read_body
from kimi_helpers.reply_merging import (
    Reply,
    TokenLogprob,
    ToolCall,
    Usage,
    all_choices,
    call_pieces,
    distinct,
    merge_bodies,
    message_of,
    reasoning_texts,
)

__all__ = ["Failure", "FailureKind", "Reply", "TokenLogprob", "ToolCall", "Usage", "parse_reply"]

MESSAGE_LENGTH = 300


class FailureKind(StrEnum):
    """Why an exchange gives no reply."""

    HTTP_ERROR = "http_error"
    ERROR_BODY = "error_body"
    ERROR_IN_200 = "error_in_200"
    CHOICE_ERROR = "choice_error"
    STREAM_ERROR = "stream_error"
    STREAM_CUT = "stream_cut"
    MALFORMED = "malformed"
    NOT_CHAT_COMPLETION = "not_chat_completion"
    SEVERAL_CHOICES = "several_choices"
    UNSUPPORTED_CONTENT = "unsupported_content"
    CONFLICTING_REASONING = "conflicting_reasoning"
    FINISH_MISSING = "finish_missing"
    UNKNOWN_FINISH = "unknown_finish"
    CONTENT_FILTER = "content_filter"
    EMPTY = "empty"
    EMPTY_ANSWER = "empty_answer"
    WRONG_PROVIDER = "wrong_provider"


@dataclass(frozen=True)
class Failure:
    """An exchange that gives no reply.

    Attributes:
        status: of HTTP, None where unknown.
        code: the host's own error code.
        message: one sentence on one line, safe to print; untrusted text in it is cut short.
        partial: what text there was, for a reader's eyes only, never for training.
        transport: None where the bytes are neither JSON nor a stream.
    """

    kind: FailureKind
    status: int | None
    code: int | str | None
    message: str
    provider: str | None
    model: str | None
    generation_id: str | None
    usage: Usage | None
    partial: Reply | None
    transport: Transport | None


Fault = tuple[FailureKind, str]


def parse_reply(body: bytes, *, status: int | None = 200) -> Reply | Failure:
    """Read one exchange. Nothing is raised, whatever the bytes.

    Args:
        body: as received; JSON or a stream, told by the bytes.
        status: of HTTP; None where it is unknown, as for a body found in a file.
    """
    exchange = read_body(body)
    reply = merge_bodies(exchange)
    # In this order: an error says why the rest is missing or odd (aider#3550, opencode#26170).
    fault = (
        _error_fault(exchange, reply.finish_reason, status)
        or _body_fault(exchange)
        or _structure_fault(exchange)
        or _finish_fault(reply)
        or _text_fault(reply)
    )
    if fault is None:
        return reply
    kind, message = fault
    error = exchange.errors[0] if exchange.errors else None
    has_text = bool(reply.reasoning or reply.content or reply.tool_calls)
    return Failure(
        kind=kind,
        status=status,
        code=error.code if error else None,
        message=_sentence(message),
        provider=(error and error.provider) or reply.provider,
        model=reply.model,
        generation_id=reply.generation_id,
        usage=reply.usage,
        partial=reply if has_text else None,
        transport=exchange.transport,
    )


def _sentence(text: str) -> str:
    """One printable line: no control characters, no lone surrogates, no API key that a host echoes."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = re.sub(r"\bsk-[\w-]{8,}", "sk-(removed)", " ".join(printable.split()))
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"


def _error_fault(exchange: ReceivedBody, finish_reason: str, status: int | None) -> Fault | None:
    error = exchange.errors[0] if exchange.errors else None
    if status is not None and not 200 <= status < 300:
        unstated = f"no error in the body ({exchange.problem or 'it was read'})"
        return FailureKind.HTTP_ERROR, f"HTTP {status}: {error.message if error else unstated}"
    if error:
        code = "" if error.code is None else f" {error.code}"
        return _error_kind(exchange, error.in_choice, status), f"the host reports an error{code}: {error.message}"
    if finish_reason == "error":
        return _error_kind(exchange, True, status), "the finish reason is error, and no error says why"
    return None


def _error_kind(exchange: ReceivedBody, in_choice: bool, status: int | None) -> FailureKind:
    if exchange.transport == "sse":
        return FailureKind.STREAM_ERROR
    if in_choice:
        return FailureKind.CHOICE_ERROR
    return FailureKind.ERROR_BODY if status is None else FailureKind.ERROR_IN_200


def _body_fault(exchange: ReceivedBody) -> Fault | None:
    if exchange.foreign:
        return FailureKind.NOT_CHAT_COMPLETION, "JSON, but no chat completion: it has no choices with a message"
    if exchange.problem:
        return FailureKind.MALFORMED, f"the body cannot be read: {exchange.problem}"
    if not exchange.ended:
        events = len(exchange.bodies)
        return FailureKind.STREAM_CUT, f"the stream broke off without [DONE] after {events} event(s): ask again"
    return None


def _structure_fault(exchange: ReceivedBody) -> Fault | None:
    choices = all_choices(exchange.bodies)
    if len({choice.index or 0 for choice in choices}) > 1 or any(
        len(body.choices or ()) > 1 for body in exchange.bodies
    ):
        return FailureKind.SEVERAL_CHOICES, "the reply has several choices: request them with n = 1"
    for field in ("provider", "model"):
        names = distinct(getattr(body, field) for body in exchange.bodies)
        if len(names) > 1:
            return FailureKind.MALFORMED, f"one reply names two {field}s: {names[0]!r} and {names[1]!r}"
    parts = [message_of(choice) for choice in choices]
    if any(part.refusal or part.function_call for part in parts):
        return FailureKind.UNSUPPORTED_CONTENT, "text in refusal or function_call has no place in a reply here"
    texts = {field: text for field, text in reasoning_texts(parts).items() if text}
    if len(set(texts.values())) > 1:
        lengths = ", ".join(f"{field} {len(text)} characters" for field, text in texts.items())
        return FailureKind.CONFLICTING_REASONING, f"the reasoning fields disagree ({lengths}): none is trusted"
    return _call_fault(parts, exchange.transport == "sse")


def _call_fault(parts: Sequence[MessageBody], streamed: bool) -> Fault | None:
    if streamed and any(call.index is None for part in parts for call in part.tool_calls or ()):
        return FailureKind.MALFORMED, "a streamed piece of a tool call has no index: it fits no call"
    for place, pieces in call_pieces(parts, streamed).items():
        ids = distinct(piece.id for piece in pieces)
        names = distinct(piece.function.name for piece in pieces if piece.function)
        if len(ids) > 1 or len(names) != 1:
            found = f"{len(ids)} ids and {len(names)} function names"
            return FailureKind.MALFORMED, f"tool call {place} has {found}: one name is needed, one id at most"
    return None


def _finish_fault(reply: Reply) -> Fault | None:
    finish = reply.finish_reason
    native = f"native: {', '.join(reply.native_finish_reasons) or 'none'}"
    if not finish:
        return FailureKind.FINISH_MISSING, f"no finish reason ({native}): the text may be cut anywhere"
    if finish == "content_filter":
        return FailureKind.CONTENT_FILTER, f"a content filter ended the reply ({native})"
    if finish not in ("stop", "tool_calls", "length"):
        # function_call among them: that legacy form has no id, which is part of the tokens.
        return FailureKind.UNKNOWN_FINISH, f"the finish reason {finish!r} ({native}) is not one known here"
    return None


def _text_fault(reply: Reply) -> Fault | None:
    if reply.content or reply.tool_calls:
        return None
    if not reply.reasoning:
        advice = ": raise max_tokens" if reply.finish_reason == "length" else ""
        return FailureKind.EMPTY, f"no reasoning, no content and no tool calls{advice}"
    if reply.finish_reason != "length" and not _answers_inside(reply.reasoning):
        # K2.6 sometimes samples </think><|im_end|> (Kimi-K2#128): a failed row, not an empty answer.
        return FailureKind.EMPTY_ANSWER, "reasoning, then neither content nor tool calls, though the turn ended"
    return None


def _answers_inside(reasoning: str) -> bool:
    """Whether a parser left the answer in the reasoning: a tool section (vllm#34955), or text after </think>."""
    _, end, answer = reasoning.partition(END_THINK)
    return BEGIN_SECTION in reasoning or bool(end and answer)
