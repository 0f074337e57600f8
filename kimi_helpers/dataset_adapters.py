"""Rows of public datasets -> conversations: an adapter a source format, told by the row's own shape.

Sources of the formats: the dataset cards of glaiveai/glaive-function-calling-v2, open-thoughts/OpenThoughts-114k,
nebius/SWE-agent-trajectories and Salesforce/xlam-function-calling-60k; the trajectory files of SWE-agent.
Tool definitions inside a system prompt stay text. Fields that the chat-completions API does not know are left out.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Message = dict[str, Any]

PROMPT_COLUMNS = ("instruction", "prompt", "problem", "question", "query", "inputs")
_ROLES = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "ai", "model"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function", "function_response", "function-response"), "tool"),
}
_CALL_ROLES = ("function_call", "function-call")
_KEPT = ("name", "reasoning_content", "tool_calls", "tool_call_id")
_SPEAKER = re.compile(r"(?:^|\n)[ \t]*(USER|ASSISTANT|FUNCTION RESPONSE):")
_CALL = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*"arguments"\s*:\s*(.*?)\s*)?\}\s*', re.DOTALL)
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
_SCHEMA_TYPES = {*_TYPES.values(), "null"}


class RowError(ValueError):
    """A row that gives no prompt; the message says what is wrong with it."""


@dataclass(frozen=True)
class Conversation:
    """A row as chat messages.

    Attributes:
        messages: as the chat-completions API takes them.
        tools: function declarations to send, or None.
        thinking: false asks the model to answer without a think section.
        id: the row's own, where it is a prompt of its own; else None.
        asks_once: the row is one prompt, whatever turns of the assistant its history holds.
        may_wait: a last message of the user or a tool waits for an answer (a trajectory just ends there).
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    thinking: bool = True
    id: str | None = None
    asks_once: bool = False
    may_wait: bool = True


def adapter_of(row: Row) -> str:
    """The name of the adapter that fits the row's shape.

    Raises:
        RowError: none does.
    """
    if _has(row, "chat") and isinstance(row["chat"], str):
        return "glaive"
    if _has(row, "trajectory"):
        return "trajectory"
    if _has(row, "conversations"):
        return "conversations"
    if _has(row, "messages"):
        if _has(row, "traj_id") or _has(row, "instance_id"):
            return "trajectory"
        return "messages"
    if any(_has(row, column) for column in PROMPT_COLUMNS):
        return "columns"
    raise RowError(f"no adapter fits its columns ({', '.join(sorted(map(str, row)))[:200]})")


def adapt(row: Any, adapter: str | None = None) -> Conversation:
    """The conversation of a row.

    Args:
        adapter: a name of `ADAPTERS`; None: told by the row's shape.

    Raises:
        RowError: the row is not what the adapter reads.
    """
    if not isinstance(row, Mapping):
        raise RowError("it is not an object")
    return ADAPTERS[adapter or adapter_of(row)](row)


def _messages(row: Row) -> Conversation:
    thinking = row.get("thinking")
    if thinking is not None and not isinstance(thinking, bool):
        raise RowError("thinking is neither true nor false")
    messages = tuple(_message(turn, place) for place, turn in enumerate(_list(row, "messages")))
    # a row of a prompt file: an id of its own, and nothing but what is sent
    is_prompt = messages[-1]["role"] in ("user", "tool") and row.keys() <= {"id", "messages", "tools", "thinking"}
    own = row.get("id") if is_prompt else None
    if own is not None and (not isinstance(own, str) or not own):
        raise RowError("id is not a text")
    return Conversation(messages, _tools(row), thinking is not False, own, is_prompt)


def _conversations(row: Row) -> Conversation:
    messages = [_message(turn, place) for place, turn in enumerate(_list(row, "conversations"))]
    return Conversation(tuple(_name_results(_with_system(row, messages))), _tools(row))


def _trajectory(row: Row) -> Conversation:
    turns = _list(row, "trajectory" if _has(row, "trajectory") else "messages")
    messages = tuple(_message(turn, place) for place, turn in enumerate(turns))
    return Conversation(messages, _tools(row), may_wait=False)


def _glaive(row: Row) -> Conversation:
    chat = row.get("chat")
    if not isinstance(chat, str):
        raise RowError("chat is not a text")
    chat = chat.replace("\r\n", "\n")
    before, *parts = _SPEAKER.split(chat)
    if before.strip() or not parts:
        raise RowError("chat does not begin with USER:, ASSISTANT: or FUNCTION RESPONSE:")
    messages: list[Message] = []
    for speaker, said in zip(parts[::2], parts[1::2], strict=True):
        text = said.strip().removesuffix("<|endoftext|>").strip()
        if speaker == "USER":
            messages.append({"role": "user", "content": text})
        elif speaker == "FUNCTION RESPONSE":
            messages.append({"role": "tool", "content": text})
        else:
            messages.append(_glaive_turn(text))
    return Conversation(tuple(_name_results(_with_system(row, messages))))


def _glaive_turn(text: str) -> Message:
    content, *calls = text.split("<functioncall>")
    if not calls:
        return {"role": "assistant", "content": text}
    parsed = [_call(call.strip().removesuffix("<|endoftext|>").strip()) for call in calls]
    return {"role": "assistant", "content": content.strip(), "tool_calls": parsed}


def _columns(row: Row) -> Conversation:
    column = next((name for name in PROMPT_COLUMNS if _has(row, name)), None)
    if column is None:
        raise RowError(f"it has none of the columns {', '.join(PROMPT_COLUMNS)}")
    if column == "prompt" and isinstance(row["prompt"], list):
        return Conversation(
            tuple(_message(turn, place) for place, turn in enumerate(_list(row, "prompt"))), _tools(row)
        )
    text = row[column]
    if not isinstance(text, str):
        raise RowError(f"{column} is not a text")
    if column == "instruction" and isinstance(more := row.get("input"), str) and more.strip():
        text = f"{text}\n\n{more}"
    messages: list[Message] = [_message({"role": "user", "content": text}, 0)]
    return Conversation(tuple(_with_system(row, messages)), _tools(row))


ADAPTERS: dict[str, Callable[[Row], Conversation]] = {
    "messages": _messages,
    "conversations": _conversations,
    "glaive": _glaive,
    "trajectory": _trajectory,
    "columns": _columns,
}


def _has(row: Row, column: str) -> bool:
    return row.get(column) is not None


def _decoded(value: Any, what: str) -> Any:
    """JSON inside a text, as Parquet and CSV files hold it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise RowError(f"{what} is a text that is not JSON") from None


def _list(row: Row, column: str) -> list[Any]:
    turns = _decoded(row.get(column), column)
    if not isinstance(turns, list):
        raise RowError(f"{column} is not a list")
    if not turns:
        raise RowError(f"{column} is empty")
    return turns


def _message(turn: Any, place: int) -> Message:
    if not isinstance(turn, Mapping):
        raise RowError(f"message {place} is not an object")
    said_by = next((turn[key] for key in ("role", "from") if turn.get(key) is not None), None)
    content = next((turn[key] for key in ("content", "value", "text") if turn.get(key) is not None), None)
    if said_by in _CALL_ROLES and isinstance(content, str):
        return {"role": "assistant", "content": "", "tool_calls": [_call(content.strip())]}
    role = _ROLES.get(said_by) if isinstance(said_by, str) else None
    if role is None:
        raise RowError(f"message {place} has no role that is known: {str(said_by)[:40]!r}")
    if role == "system" and content is None:
        content = turn.get("system_prompt")  # where nebius/SWE-agent-trajectories keeps it
    message: Message = {"role": role, "content": _content(content, place)}
    message |= {key: turn[key] for key in _KEPT if turn.get(key) is not None}
    if "tool_calls" in message:
        message["tool_calls"] = _calls(message["tool_calls"], place)
        if not message["tool_calls"]:
            del message["tool_calls"]
    answered = turn.get("tool_call_ids")  # SWE-agent writes a list
    if role == "tool" and "tool_call_id" not in message and isinstance(answered, list) and len(answered) == 1:
        message["tool_call_id"] = answered[0]
    if content is None and "tool_calls" not in message:
        raise RowError(f"message {place} has no content")
    if role == "user" and not message["content"]:
        raise RowError(f"message {place} of the user is empty")
    return message


def _content(content: Any, place: int) -> Any:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, Mapping) and "type" in part for part in content):
        kept = [{key: value for key, value in part.items() if value is not None} for part in content]
        if len(kept) == 1 and kept[0].keys() >= {"type", "text"} and kept[0]["type"] == "text":
            return kept[0]["text"]
        return kept
    raise RowError(f"the content of message {place} is neither a text nor a list of parts")


def _calls(calls: Any, place: int) -> list[Message]:
    calls = _decoded(calls, f"tool_calls of message {place}")
    if not isinstance(calls, list):
        raise RowError(f"tool_calls of message {place} is not a list")
    kept = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise RowError(f"a tool call of message {place} names no function")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        kept.append(
            {"id": call.get("id"), "type": "function", "function": {"name": function["name"], "arguments": text}}
        )
    return kept


def _call(text: str) -> Message:
    """A call as Glaive writes it: the arguments are JSON, in single quotes or bare."""
    match = _CALL.fullmatch(text)
    if not match:
        raise RowError(f"a function call cannot be read: {text[:80]!r}")
    arguments = match[2] or "{}"
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
    return {"id": None, "type": "function", "function": {"name": name, "arguments": arguments}}


def _name_results(messages: list[Message]) -> list[Message]:
    """Gives calls without an id the one that Kimi would (`functions.NAME:COUNT`), and each result that of its call."""
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


def _with_system(row: Row, messages: list[Message]) -> list[Message]:
    system = row.get("system")
    if system is None or messages[0]["role"] == "system":
        return messages
    if not isinstance(system, str):
        raise RowError("system is not a text")
    text = re.sub(r"\ASYSTEM:\s*", "", system).strip()
    return [{"role": "system", "content": text}, *messages] if text else messages


def _tools(row: Row) -> tuple[Mapping[str, Any], ...] | None:
    tools = row.get("tools")
    if tools is None or tools == "":
        return None
    tools = _decoded(tools, "tools")
    if not isinstance(tools, list):
        raise RowError("tools is not a list")
    return tuple(_tool(_decoded(tool, "a tool")) for tool in tools) or None


def _tool(tool: Any) -> Mapping[str, Any]:
    if isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping):
        function = tool["function"]
    elif isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
        function, tool = tool, {"type": "function", "function": _declared(tool)}
    else:
        raise RowError("a tool is no function declaration")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise RowError("a tool has no name")
    return dict(tool)


def _declared(tool: Row) -> dict[str, Any]:
    """A bare declaration; where its parameters are no JSON schema (APIGen, xLAM) they become one."""
    parameters = _decoded(tool.get("parameters") or {}, "parameters of a tool")
    if not isinstance(parameters, Mapping):
        raise RowError("parameters of a tool are not an object")
    if "properties" not in parameters and parameters.get("type") != "object":
        properties = {name: _property(value) for name, value in parameters.items()}
        parameters = {"type": "object", "properties": properties}
    return {"name": tool["name"], "description": tool.get("description") or "", "parameters": parameters}


def _property(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise RowError("a parameter of a tool is not described by an object")
    stated = value.get("type")
    if not isinstance(stated, str):
        return dict(value)
    plain = re.split(r"[\[,]", stated)[0].strip().lower()
    kind = _TYPES.get(plain, plain)
    return {**value, "type": kind} if kind in _SCHEMA_TYPES else {k: v for k, v in value.items() if k != "type"}
