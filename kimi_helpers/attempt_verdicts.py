"""What generation makes of an attempt: keep it, ask again, give it up, or stop the run.

Source of the codes: OpenRouter's documentation of errors, and recorded error replies.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kimi_helpers.openrouter import Transfer
from kimi_helpers.replies import Failure, FailureKind, Reply, Usage, parse_reply

# What may go well a moment later.
TRANSIENT_CODES = frozenset({408, 429, 500, 502, 503, 504, 524, 529})

# Among them those that say to send less.
REFUSAL_CODES = frozenset({429, 503, 529})

# The same, where a reply broke off and no code says why. Other faults would come again, and be billed again.
_TRANSIENT_KINDS = frozenset(
    {FailureKind.STREAM_CUT, FailureKind.STREAM_ERROR, FailureKind.CHOICE_ERROR, FailureKind.ERROR_IN_200}
)

STOPPING_CODES = {
    401: "the API refuses the key: check OPENROUTER_API_KEY",
    402: "the credits are used up: add some, or raise the key's limit",
    403: "the API forbids the request: check what the key and the account may use",
}

# In the `metadata` of an error these say that one prompt was refused, by moderation, a guardrail or a provider.
_REFUSED_PROMPT = ("flagged_input", "patterns", "provider_name", "reasons")


@dataclass(frozen=True)
class AttemptVerdict:
    """What to do after an attempt.

    Attributes:
        failure: its kind, or None for a reply.
        usage: what the host billed, as far as it says.
        retriable: it may go well a moment later.
        retry_after: seconds that the host asks to wait, or 0.
        stop: why no further request makes sense, or None.
        is_refusal: the host had no room for it, or the rate was too high: fewer requests would have done better.
    """

    failure: str | None
    usage: Usage | None = None
    retriable: bool = False
    retry_after: float = 0.0
    stop: str | None = None
    is_refusal: bool = False


def judge(transfer: Transfer, provider_name: str | None = None) -> AttemptVerdict:
    """Judge an attempt. A reply counts only if its exchange came to a proper end.

    Args:
        provider_name: who must have answered, as replies name it; None where that is not known. A reply of another, or
            of nobody named, is a failure, and is not asked for again: it is billed each time.
    """
    outcome = parse_reply(transfer.body, status=transfer.status)
    wait = _retry_after(transfer.headers.get("retry-after", ""))
    if transfer.transport_error is not None:
        return AttemptVerdict("transport_error", outcome.usage, retriable=True, retry_after=wait)
    if isinstance(outcome, Reply):
        is_right = provider_name is None or outcome.provider == provider_name
        return AttemptVerdict(None if is_right else FailureKind.WRONG_PROVIDER.value, outcome.usage)
    return AttemptVerdict(
        failure=outcome.kind.value,
        usage=outcome.usage,
        retriable=_is_transient(outcome),
        retry_after=wait,
        stop=_reason_to_stop(outcome, transfer.body),
        is_refusal=_has_code(outcome, REFUSAL_CODES),
    )


def _code(failure: Failure) -> int | str | None:
    return failure.status if failure.kind is FailureKind.HTTP_ERROR else failure.code


def _has_code(failure: Failure, codes: frozenset[int]) -> bool:
    return str(_code(failure)) in map(str, codes)


def _is_transient(failure: Failure) -> bool:
    return failure.kind in _TRANSIENT_KINDS if _code(failure) is None else _has_code(failure, TRANSIENT_CODES)


def _reason_to_stop(failure: Failure, body: bytes) -> str | None:
    if failure.kind is not FailureKind.HTTP_ERROR or failure.status not in STOPPING_CODES:
        return None
    if failure.status == 403 and _refuses_prompt(body):
        return None
    return f"{STOPPING_CODES[failure.status]} ({failure.message})"


def _refuses_prompt(body: bytes) -> bool:
    try:
        metadata = json.loads(body)["error"]["metadata"]
        return any(metadata.get(name) for name in _REFUSED_PROMPT)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return False


def _retry_after(header: str) -> float:
    """Seconds to wait by a `Retry-After` header (RFC 9110: seconds, or a date); 0 where it says nothing usable."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
