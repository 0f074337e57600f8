"""Bodies of chat-completions exchanges, made small."""

import json
from typing import Any

CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def json_body(document: Any) -> bytes:
    """JSON with every character that UTF-8 can hold written raw."""
    text = json.dumps(document, ensure_ascii=False)
    return "".join(json.dumps(c)[1:-1] if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def completion(message: Any, finish: Any = "stop", choice: Any = None, **top: Any) -> bytes:
    """A JSON reply of one choice; `choice` and `top` add fields to the choice and to the body."""
    made = {"index": 0, "message": message, "finish_reason": finish, **(choice or {})}
    return json_body({"id": "gen-1", "model": "m", "provider": "P", "choices": [made], **top})


def chunk(delta: Any, finish: Any = None, choice: Any = None, **top: Any) -> dict[str, Any]:
    """One event of a stream, as a document."""
    made = {"index": 0, "delta": delta, "finish_reason": finish, **(choice or {})}
    return {"id": "gen-1", "model": "m", "provider": "P", "choices": [made], **top}


def stream(*documents: Any, done: bool = True) -> bytes:
    """A stream of these events."""
    events = [b"data: " + json_body(document) + b"\n\n" for document in documents]
    return b": PROCESSING\n\n" + b"".join(events) + (b"data: [DONE]\n\n" if done else b"")
