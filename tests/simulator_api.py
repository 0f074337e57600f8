"""Requests to a loopback OpenRouter, and its replies in one form, for tests of the simulator."""

import json
from typing import Any

import httpx

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


def body(said: str = "q 1", host: str | None = "faithful/int4", **fields: Any) -> dict[str, Any]:
    provider = {"provider": {"only": [host]}} if host else {}
    return {
        "model": "moonshotai/kimi-k2.5",
        "messages": [{"role": "user", "content": said}],
        **provider,
        **fields,
    }


def post(api: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = api.post("/chat/completions", json=body(**fields))
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def stream(api: httpx.Client, **fields: Any) -> tuple[bytes, list[dict[str, Any]]]:
    """The raw body and its chunks; events are split on bytes."""
    answer = api.post("/chat/completions", json=body(stream=True, **fields))
    assert answer.headers["content-type"] == "text/event-stream"
    events = [event for event in answer.content.split(b"\n\n") if event.startswith(b"data: ")]
    assert events.pop() == b"data: [DONE]"
    return answer.content, [json.loads(event.removeprefix(b"data: ")) for event in events]


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the chunks of a stream add up to."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls: dict[int, dict[str, str]] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
        known = calls.setdefault(call["index"], {"id": call.get("id", ""), "arguments": ""})
        known["arguments"] += call["function"]["arguments"]
    fields = ("content", "reasoning", "reasoning_content")
    told = {name: "".join(delta.get(name) or "" for delta in deltas) or None for name in fields}
    details = "".join(detail["text"] for delta in deltas for detail in delta.get("reasoning_details", ()))
    return {**told, "details": details or None, "calls": list(calls.values())}


def flat(message: dict[str, Any]) -> dict[str, Any]:
    """A message of a JSON body, in the form of `joined`."""
    details = "".join(detail["text"] for detail in message.get("reasoning_details", ()))
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    return {
        **{name: message.get(name) for name in ("content", "reasoning", "reasoning_content")},
        "details": details or None,
        "calls": [{"id": call["id"], "arguments": call["arguments"]} for call in calls],
    }


def truth(api: httpx.Client, id: str) -> dict[str, Any]:
    told: dict[str, Any] = api.get(str(api.base_url).replace("/api/v1/", f"/truth/{id}")).json()
    return told
