"""Rows of public datasets -> conversations: an adapter a source format, told by the row's own shape.

Sources of the formats: the dataset cards of glaiveai/glaive-function-calling-v2, open-thoughts/OpenThoughts-114k,
nebius/SWE-agent-trajectories, SWE-bench/SWE-smith-trajectories and Salesforce/xlam-function-calling-60k; the
trajectory files of SWE-agent. Tool definitions inside a system prompt stay text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kimi_helpers.dataset_messages import Message, Row, call_of, decoded, messages_of, name_calls, said_by_user
from kimi_helpers.dataset_rows import RowError
from kimi_helpers.workspace import printable

PROMPT_COLUMNS = ("instruction", "prompt", "problem", "question", "query", "inputs")
_PROMPT_FILE = {"id", "messages", "tools", "thinking"}
_END_OF_TEXT = "<|endoftext|>"
_LABEL = r"[ \t]*(?:USER|ASSISTANT|FUNCTION RESPONSE):"
# Glaive parts turns by two blank lines; a label behind less stands inside a message, or ends it: nobody can tell.
_TURN = re.compile(rf"(?:\A\s*+|(?<=\S)(?:[ \t\r]*+\n){{3}}\s*+)(?={_LABEL})")
_INNER_LABEL = re.compile(rf"\n({_LABEL})")
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
_SCHEMA_TYPES = {*_TYPES.values(), "null"}


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
    if isinstance(row.get("chat"), str):
        return "glaive"
    if _has(row, "trajectory"):
        return "trajectory"
    if _has(row, "conversations"):
        return "conversations"
    if _has(row, "messages"):
        return "trajectory" if _has(row, "traj_id") or _has(row, "instance_id") else "messages"
    if any(_has(row, column) for column in PROMPT_COLUMNS):
        return "columns"
    raise RowError(f"no adapter fits its columns ({printable(', '.join(sorted(map(str, row)))[:200])})")


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
    messages = messages_of(row.get("messages"), "messages")
    # a row of a prompt file: an id of its own, and nothing but what is sent
    is_prompt = messages[-1]["role"] in ("user", "tool") and row.keys() <= _PROMPT_FILE
    own = row.get("id") if is_prompt else None
    if own is not None and (not isinstance(own, str) or not own):
        raise RowError("id is not a text")
    return Conversation(tuple(messages), _tools(row), thinking is not False, own, is_prompt)


def _conversations(row: Row) -> Conversation:
    messages = messages_of(row.get("conversations"), "conversations")
    return Conversation(_with_system(row, messages), _tools(row))


def _trajectory(row: Row) -> Conversation:
    # a trajectory file of SWE-agent holds its steps in `trajectory` and the messages in `history`
    column = next((name for name in ("history", "trajectory") if _has(row, name)), "messages")
    return Conversation(tuple(messages_of(row.get(column), column)), _tools(row), may_wait=False)


def _glaive(row: Row) -> Conversation:
    chat = row.get("chat")
    if not isinstance(chat, str):
        raise RowError("chat is not a text")
    before, *turns = _TURN.split(chat)
    if before.strip() or not turns:
        raise RowError("chat does not begin with USER:, ASSISTANT: or FUNCTION RESPONSE:")
    return Conversation(_with_system(row, name_calls([_glaive_turn(turn) for turn in turns])))


def _glaive_turn(turn: str) -> Message:
    label, _, said = turn.strip().partition(":")
    if inner := _INNER_LABEL.search(said):
        raise RowError(f"a line inside a message begins with {inner[1].strip()}; where the message ends cannot be told")
    text = _without_end(said)
    if label == "USER":
        return said_by_user(text, "a message of the user")
    if label == "FUNCTION RESPONSE":
        return {"role": "tool", "content": text}
    content, *calls = text.split("<functioncall>")
    if not calls:
        return {"role": "assistant", "content": text}
    return {
        "role": "assistant",
        "content": content.strip(),
        "tool_calls": [call_of(_without_end(call)) for call in calls],
    }


def _without_end(text: str) -> str:
    return text.strip().removesuffix(_END_OF_TEXT).strip()


def _columns(row: Row) -> Conversation:
    column = next((name for name in PROMPT_COLUMNS if _has(row, name)), None)
    if column is None:
        raise RowError(f"it has none of the columns {', '.join(PROMPT_COLUMNS)}")
    if column == "prompt" and isinstance(row["prompt"], list):
        return Conversation(tuple(messages_of(row["prompt"], "prompt")), _tools(row))
    asked = said_by_user(row[column], column)
    if column == "instruction" and isinstance(more := row.get("input"), str) and more.strip():
        asked["content"] += f"\n\n{more}"
    return Conversation(_with_system(row, [asked]), _tools(row))


ADAPTERS: dict[str, Callable[[Row], Conversation]] = {
    "messages": _messages,
    "conversations": _conversations,
    "glaive": _glaive,
    "trajectory": _trajectory,
    "columns": _columns,
}


def _has(row: Row, column: str) -> bool:
    return row.get(column) is not None


def _with_system(row: Row, messages: list[Message]) -> tuple[Message, ...]:
    """The messages behind the row's `system`, where it has one and they do not begin with their own."""
    system = row.get("system")
    if system is None or messages[0]["role"] == "system":
        return tuple(messages)
    if not isinstance(system, str):
        raise RowError("system is not a text")
    text = re.sub(r"\ASYSTEM:\s*", "", system).strip()
    return ({"role": "system", "content": text}, *messages) if text else tuple(messages)


def _tools(row: Row) -> tuple[Mapping[str, Any], ...] | None:
    tools = row.get("tools")
    if tools is None or tools == "":
        return None
    tools = decoded(tools, "tools")
    if not isinstance(tools, list):
        raise RowError("tools is not a list")
    return tuple(_tool(decoded(tool, "a tool")) for tool in tools) or None


def _tool(tool: Any) -> dict[str, Any]:
    if isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping):
        declared = dict(tool) if "type" in tool else {"type": "function", **tool}
    elif isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
        declared = {"type": "function", "function": _declared(tool)}
    else:
        raise RowError("a tool is no function declaration")
    if declared["type"] != "function":
        raise RowError(f"a tool is of a type that is not known: {str(declared['type'])[:40]!r}")
    if not isinstance(declared["function"].get("name"), str) or not declared["function"]["name"]:
        raise RowError("a tool has no name")
    return declared


def _declared(tool: Row) -> dict[str, Any]:
    """A bare declaration; where its parameters are no JSON schema (APIGen, xLAM) they become one."""
    parameters = decoded(tool.get("parameters") or {}, "parameters of a tool")
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
