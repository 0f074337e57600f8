"""Messages, calls and results of public datasets -> those of the chat-completions API."""

import json
import re
from collections.abc import Mapping
from typing import Any

from kimi_helpers.dataset_rows import RowError

Row = Mapping[str, Any]
Message = dict[str, Any]

_ROLES = {
    "system": "system",
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "ai", "model"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function", "function_response", "function-response"), "tool"),
}
_CALL_ROLES = ("function_call", "function-call")
_KEPT_TEXTS = ("name", "reasoning_content", "tool_call_id")
_CALL = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*"arguments"\s*:(.*))?\}', re.DOTALL)


def decoded(value: Any, what: str) -> Any:
    """JSON inside a text, as Parquet and CSV files hold it; another value as it is.

    Raises:
        RowError: the text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise RowError(f"{what} is a text that is not JSON") from None


def messages_of(turns: Any, column: str) -> list[Message]:
    """The messages of a list of turns, each call and result with an id (`name_calls`).

    A turn names its speaker in `role` or `from`, its text in `content`, `value` or `text`. Fields that the API does not
    know are left out.

    Raises:
        RowError: it is no list, it is empty, or a turn is no message; messages are counted from 1.
    """
    turns = decoded(turns, column)
    if not isinstance(turns, list):
        raise RowError(f"{column} is not a list")
    if not turns:
        raise RowError(f"{column} is empty")
    return name_calls([_message(turn, place) for place, turn in enumerate(turns, 1)])


def said_by_user(text: Any, what: str) -> Message:
    """A message of the user.

    Raises:
        RowError: it is no text, or holds nothing.
    """
    if not isinstance(text, str):
        raise RowError(f"{what} is not a text")
    if not text.strip():
        raise RowError(f"{what} is empty")
    return {"role": "user", "content": text}


def call_of(text: str) -> Message:
    """A call as Glaive writes it: an object whose arguments are JSON, in single quotes or bare.

    The arguments are kept as they are written. The id is None until `name_calls`.

    Raises:
        RowError: it is no such call.
    """
    match = _CALL.fullmatch(text.strip())
    if not match:
        raise RowError(f"a function call cannot be read: {text[:80]!r}")
    arguments = (match[2] or "{}").strip()
    if len(arguments) > 1 and arguments[0] == arguments[-1] == "'":
        arguments = arguments[1:-1].replace("\\'", "'")
    try:
        name = json.loads(match[1])
        value = json.loads(arguments)
        if isinstance(value, str):
            arguments, value = value, json.loads(value)
    except (ValueError, RecursionError):
        raise RowError(f"the arguments of a function call are not JSON: {arguments[:80]!r}") from None
    if not isinstance(value, dict):
        raise RowError(f"the arguments of a function call are not an object: {arguments[:80]!r}")
    return _call_message(None, name, arguments)


def name_calls(messages: list[Message]) -> list[Message]:
    """Gives a call without an id the one that Kimi would (`functions.NAME:COUNT`), and each result that of its call.

    A result without an id answers the first call that is still open.

    Raises:
        RowError: a result without an id answers no call.
    """
    count = 0
    open_calls: list[str] = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] = call["id"] or f"functions.{call['function']['name']}:{count}"
            count += 1
            open_calls.append(call["id"])
        if message["role"] == "tool" and "tool_call_id" not in message:
            if not open_calls:
                raise RowError("a tool's result answers no call")
            message["tool_call_id"] = open_calls.pop(0)
        elif message["role"] == "tool" and message["tool_call_id"] in open_calls:
            open_calls.remove(message["tool_call_id"])
    return messages


def _message(turn: Any, place: int) -> Message:
    if not isinstance(turn, Mapping):
        raise RowError(f"message {place} is not an object")
    said_by = next((turn[key] for key in ("role", "from") if turn.get(key) is not None), None)
    content = next((turn[key] for key in ("content", "value", "text") if turn.get(key) is not None), None)
    if said_by in _CALL_ROLES and isinstance(content, str):
        return {"role": "assistant", "content": "", "tool_calls": [call_of(content)]}
    role = _ROLES.get(said_by) if isinstance(said_by, str) else None
    if role is None:
        raise RowError(f"message {place} has no role that is known: {str(said_by)[:40]!r}")
    if role == "system" and content is None:
        content = turn.get("system_prompt")  # where nebius/SWE-agent-trajectories keeps it
    message: Message = {"role": role, "content": _content(content, place)} | _kept_texts(turn, place)
    if calls := _calls(turn.get("tool_calls"), place):
        message["tool_calls"] = calls
    answered = turn.get("tool_call_ids")  # SWE-agent writes a list
    if role == "tool" and "tool_call_id" not in message and isinstance(answered, list) and len(answered) == 1:
        message["tool_call_id"] = str(answered[0])
    if content is None and not calls:
        raise RowError(f"message {place} has no content")
    if role == "user" and isinstance(message["content"], str):
        said_by_user(message["content"], f"message {place} of the user")
    return message


def _kept_texts(turn: Row, place: int) -> Message:
    kept = {key: turn[key] for key in _KEPT_TEXTS if turn.get(key) is not None}
    for key, value in kept.items():
        if not isinstance(value, str):
            raise RowError(f"{key} of message {place} is not a text")
    return kept


def _content(content: Any, place: int) -> Any:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and content and all(isinstance(part, Mapping) and "type" in part for part in content):
        kept = [{key: value for key, value in part.items() if value is not None} for part in content]
        if len(kept) == 1 and kept[0]["type"] == "text" and isinstance(kept[0].get("text"), str):
            return kept[0]["text"]
        return kept
    raise RowError(f"the content of message {place} is neither a text nor a list of parts")


def _calls(calls: Any, place: int) -> list[Message]:
    calls = decoded(calls, f"tool_calls of message {place}")
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise RowError(f"tool_calls of message {place} is not a list")
    return [_call(call, place) for call in calls]


def _call(call: Any, place: int) -> Message:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RowError(f"a tool call of message {place} names no function")
    if not isinstance(call.get("id"), str | None):
        raise RowError(f"the id of a tool call of message {place} is not a text")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return _call_message(call.get("id"), function["name"], text)


def _call_message(id: str | None, name: str, arguments: str) -> Message:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
