"""The bodies of replies and errors, field by field as OpenRouter writes them.

The shapes are those of recorded replies of Kimi K2.5: whitespace before a JSON body, comments in a stream, the role
in every chunk, the finish reason repeated in the chunk that carries the usage.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from kimi_helpers.simulator.answers import Answer
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import Host, cost
from kimi_helpers.simulator.serving_stack import Pieces
from kimi_helpers.simulator.token_evidence import Evidence

KEEP_ALIVE = b"\n         \n"
COMMENT = b": OPENROUTER PROCESSING\n\n"
TOKENS_A_CHUNK = (1, 2, 4, 3)

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Generation:
    """One reply that was given.

    Attributes:
        id: its generation id.
        created: when, in seconds since 1970.
        model: the canonical slug of the model.
        host: who served it.
        completion: what was sampled.
        answer: what the host made of it.
        streamed: whether it was asked for as a stream.
        evidence: what the host tells of the sampled tokens, where it was asked to.
    """

    id: str
    created: int
    model: str
    host: Host
    completion: Completion
    answer: Answer
    streamed: bool
    evidence: Evidence | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """The `usage` object."""
        prompt, completion = len(self.completion.prompt_ids), self.answer.completion_tokens
        prompt_cost, completion_cost = cost(self.host, prompt, completion)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "cost": float(prompt_cost + completion_cost),
            "is_byok": False,
            "prompt_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "audio_tokens": 0,
                "video_tokens": 0,
            },
            "cost_details": {
                "upstream_inference_cost": float(prompt_cost + completion_cost),
                "upstream_inference_prompt_cost": float(prompt_cost),
                "upstream_inference_completions_cost": float(completion_cost),
            },
            "completion_tokens_details": {
                "reasoning_tokens": self.answer.reasoning_tokens,
                "image_tokens": 0,
                "audio_tokens": 0,
            },
        }


def encoded(body: Any) -> bytes:
    """A body as compact JSON in UTF-8, nothing escaped that need not be; a lone surrogate becomes `?`."""
    return _ENCODER.encode(body).encode("utf-8", "replace")


def error_body(status: int, message: str, error_type: str) -> bytes:
    """The body of an error reply; `error_type` as the API's documentation lists them."""
    return encoded({"error": {"message": message, "code": status, "metadata": {"error_type": error_type}}})


def json_body(generation: Generation) -> bytes:
    """The body of a reply that is not streamed, behind whitespace that kept the connection alive."""
    finish, evidence = generation.answer.finish_reason, generation.evidence
    ids = generation.completion.token_ids
    choice = {
        "index": 0,
        "logprobs": None,
        "finish_reason": finish,
        "native_finish_reason": finish,
        "message": _message(generation),
        **(evidence.choice_fields(0, len(ids)) if evidence else {}),
    }
    body = {
        **_envelope(generation, "chat.completion"),
        "system_fingerprint": None,
        "choices": [choice],
        "usage": generation.usage,
        **(evidence.body_fields() if evidence else {}),
    }
    return KEEP_ALIVE * (1 + len(ids) // 50) + encoded(body)


def _envelope(generation: Generation, kind: str) -> dict[str, Any]:
    return {
        "id": generation.id,
        "object": kind,
        "created": generation.created,
        "model": generation.model,
        "provider": generation.host.name,
    }


def _message(generation: Generation) -> dict[str, Any]:
    answer = generation.answer
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(answer.content) or None,
        "refusal": None,
        generation.host.reasoning_field: "".join(answer.reasoning) or None,
    }
    if answer.calls:
        message["tool_calls"] = [
            {
                "type": "function",
                "index": index,
                "id": call.id,
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for index, call in enumerate(answer.calls)
        ]
    return message | _reasoning_details(generation, "".join(answer.reasoning))


def _reasoning_details(generation: Generation, text: str) -> dict[str, Any]:
    """The same text once more, where the host has the field `reasoning`."""
    if not text or generation.host.reasoning_field != "reasoning":
        return {}
    return {"reasoning_details": [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]}


def event_stream(generation: Generation) -> bytes:
    """The body of a streamed reply: server-sent events and comments."""
    opening = COMMENT * (1 + len(generation.completion.prompt_ids) % 3)
    # the envelope is written once: it is the same in every event
    envelope = encoded(_envelope(generation, "chat.completion.chunk"))[:-1] + b',"choices":['
    evidence = generation.evidence
    events: list[bytes] = []
    for choice in _choices(generation):
        prompt = evidence.body_fields() if evidence and not events else {}
        events.append(_event(envelope, choice, prompt))
    finish = generation.answer.finish_reason
    repeated = _chunk_choice({"content": "", "role": "assistant"}, finish)
    events.append(_event(envelope, repeated, {"usage": generation.usage}))
    return b"".join((opening, *events, b"data: [DONE]\n\n"))


def _event(envelope: bytes, choice: dict[str, Any], rest: dict[str, Any]) -> bytes:
    fields = b"," + encoded(rest)[1:] if rest else b"}"
    return b"data: " + envelope + encoded(choice) + b"]" + fields + b"\n\n"


def _chunk_choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish, "native_finish_reason": finish}


def _choices(generation: Generation) -> Iterator[dict[str, Any]]:
    """The choice of every event up to the one with the finish reason."""
    deltas = list(_deltas(generation))
    last = {"content": "", "role": "assistant", generation.host.reasoning_field: None}
    finished = _chunk_choice(last, generation.answer.finish_reason)
    if (evidence := generation.evidence) is None:
        yield from (_chunk_choice(delta, None) for _, delta in deltas)
        yield finished
        return
    place = 0
    ranges = evidence.chunks(text for text, _ in deltas)
    for (_, delta), (start, place) in zip(deltas, ranges, strict=True):
        yield _chunk_choice(delta, None) | evidence.choice_fields(start, place)
    yield finished | evidence.choice_fields(place, len(evidence.token_ids))


def _deltas(generation: Generation) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """What each chunk adds to a text of the reply, and the delta that says so; None opens a tool call."""
    answer = generation.answer
    for text in _merged(answer.reasoning):
        said = {"content": "", "role": "assistant", generation.host.reasoning_field: text}
        yield text, said | _reasoning_details(generation, text)
    for text in _merged(answer.content):
        yield text, {"content": text, "role": "assistant"}
    for index, call in enumerate(answer.calls):
        opening = {"name": call.name, "arguments": ""}
        yield None, _call_delta({"index": index, "id": call.id, "type": "function", "function": opening})
        for text in _merged(call.arguments):
            yield text, _call_delta({"index": index, "function": {"arguments": text}})


def _call_delta(call: dict[str, Any]) -> dict[str, Any]:
    return {"content": None, "role": "assistant", "tool_calls": [call]}


def _merged(pieces: Pieces) -> Iterator[str]:
    """Pieces put together, one to four a chunk, as speculative decoding does."""
    rest: Iterable[str] = iter(piece for piece in pieces if piece)
    for size in cycle(TOKENS_A_CHUNK):
        text = "".join(islice(rest, size))
        if not text:
            return
        yield text
