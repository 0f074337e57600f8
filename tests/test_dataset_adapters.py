"""Each source format on rows written by hand."""

import json
import time
from typing import Any

import pytest

from kimi_helpers.dataset_adapters import Conversation, adapt, adapter_of
from kimi_helpers.dataset_rows import RowError

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def refused(row: Any, adapter: str | None = None) -> str:
    with pytest.raises(RowError) as caught:
        adapt(row, adapter)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "adapter"),
    [
        ({"chat": "USER: q", "system": None}, "glaive"),
        ({"chat": None, "trajectory": []}, "trajectory"),
        ({"messages": [], "traj_id": "t"}, "trajectory"),
        ({"messages": [], "instance_id": "i"}, "trajectory"),
        ({"conversations": [], "system": ""}, "conversations"),
        ({"messages": [], "prompt": "p"}, "messages"),
        ({"instruction": "i", "output": "o"}, "columns"),
        ({"inputs": "i", "targets": "t"}, "columns"),
    ],
)
def test_the_shape_tells_the_adapter(row: Any, adapter: str) -> None:
    assert adapter_of(row) == adapter


def test_rows_that_no_adapter_fits() -> None:
    assert refused({"b": 1, "a": "x"}) == "no adapter fits its columns (a, b)"
    assert refused({"\x1b[31m": 1}) == "no adapter fits its columns (\\x1b[31m)"
    assert refused([1]) == "it is not an object"
    assert refused({"problem": "p"}, "glaive") == "chat is not a text"
    assert refused({"answer": "p"}, "columns").startswith("it has none of the columns instruction, ")


# chat messages


def test_a_row_of_a_prompt_file_is_one_prompt_with_its_own_id() -> None:
    row = {"id": "x", "messages": [USER, ANSWER, USER], "tools": [TOOL], "thinking": False}
    assert adapt(row) == Conversation((USER, ANSWER, USER), (TOOL,), False, "x", asks_once=True)


def test_a_row_with_more_than_a_prompt_or_with_its_answer_is_a_conversation() -> None:
    assert adapt({"id": "x", "messages": [USER, ANSWER]}) == Conversation((USER, ANSWER))
    assert adapt({"id": "x", "messages": [USER], "score": 1}) == Conversation((USER,))
    assert adapt({"messages": json.dumps([USER, ANSWER]), "n": ""}) == Conversation((USER, ANSWER))


def test_faults_of_prompt_rows() -> None:
    assert refused({"messages": [USER], "thinking": "no"}) == "thinking is neither true nor false"
    assert refused({"messages": [USER], "id": 7}) == "id is not a text"
    assert refused({"messages": [USER], "id": ""}) == "id is not a text"


# conversations


def test_conversations_with_system() -> None:
    row = {"system": "s", "conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": "a"}]}
    assert adapt(row) == Conversation(({"role": "system", "content": "s"}, USER, ANSWER))
    own = [{"from": "system", "value": "mine"}, *row["conversations"]]
    assert adapt(row | {"conversations": own}).messages[0] == {"role": "system", "content": "mine"}
    assert adapt(row | {"system": " "}).messages == (USER, ANSWER)
    assert refused(row | {"system": 7}) == "system is not a text"


# Glaive

GLAIVE = (
    "USER: Weather in Riga?\n\n\n"
    'ASSISTANT: I look. <functioncall> {"name": "get_weather", "arguments": \'{"city": "Riga"}\'} <|endoftext|>\n\n\n'
    'FUNCTION RESPONSE: {"celsius": 4}\n\n\n'
    "ASSISTANT: It is 4 degrees.\n\nWarm for the season. <|endoftext|>\n\n\n"
)
GLAIVE_MESSAGES = (
    {"role": "user", "content": "Weather in Riga?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {
                "id": "functions.get_weather:0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Riga"}'},
            }
        ],
    },
    {"role": "tool", "content": '{"celsius": 4}', "tool_call_id": "functions.get_weather:0"},
    {"role": "assistant", "content": "It is 4 degrees.\n\nWarm for the season."},
)


def test_glaive_keeps_the_functions_as_text() -> None:
    functions = 'You can use -\n{"name": "get_weather"}'
    conversation = adapt({"system": f"SYSTEM: {functions}", "chat": GLAIVE})
    assert conversation == Conversation(({"role": "system", "content": functions}, *GLAIVE_MESSAGES))
    assert conversation.tools is None


def test_glaive_with_lines_that_end_in_crlf() -> None:
    messages = adapt({"chat": GLAIVE.replace("\n", "\r\n")}).messages
    assert messages[:3] == GLAIVE_MESSAGES[:3]
    assert messages[3]["content"] == "It is 4 degrees.\r\n\r\nWarm for the season."


@pytest.mark.parametrize("gap", ["\n", "\n\n", "\r\n", "\n  "])
@pytest.mark.parametrize("label", ["USER:", "ASSISTANT:", "FUNCTION RESPONSE:"])
def test_a_label_at_the_start_of_a_line_inside_a_message_is_refused(gap: str, label: str) -> None:
    chat = f"USER: Continue this play.{gap}{label} hello\n\n\nASSISTANT: Gladly. <|endoftext|>"
    told = f"a line inside a message begins with {label}; where the message ends cannot be told"
    assert refused({"chat": chat}) == told


def test_a_label_inside_a_line_is_text() -> None:
    messages = adapt({"chat": "USER: Is 'ASSISTANT: x' a label?\n\n\n\n  ASSISTANT: No USER: here."}).messages
    assert [said["content"] for said in messages] == ["Is 'ASSISTANT: x' a label?", "No USER: here."]


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ("", "chat does not begin with USER:"),
        ("Hello\n\n\nUSER: q", "chat does not begin with USER:"),
        ("USER: \n\n\nASSISTANT: a", "a message of the user is empty"),
        ("USER: q\n\n\nFUNCTION RESPONSE: 1", "a tool's result answers no call"),
        ("USER: q\n\n\nASSISTANT: <functioncall> f", "a function call cannot be read: 'f'"),
    ],
)
def test_what_is_no_chat_of_glaive(chat: str, reason: str) -> None:
    assert refused({"chat": chat}, "glaive").startswith(reason)


@pytest.mark.parametrize("blanks", ["\n", " \n", "\r\n", " "])
def test_a_long_run_of_blanks_takes_no_longer_than_its_length(blanks: str) -> None:
    def seconds(times: int) -> float:
        start = time.process_time()
        adapt({"chat": "USER: a" + blanks * times + "b\n\n\nASSISTANT: c"})
        return time.process_time() - start

    assert seconds(50_000) < 30 * max(seconds(5_000), 1e-3)


# trajectories


def test_nebius_trajectory() -> None:
    turns = [
        {"role": "system", "system_prompt": "s", "text": None, "mask": False, "cutoff_date": None},
        {"role": "user", "text": "q", "system_prompt": None},
        {"role": "ai", "text": "a"},
        {"role": "user", "text": "done"},
    ]
    messages = ({"role": "system", "content": "s"}, USER, ANSWER, {"role": "user", "content": "done"})
    assert adapt({"instance_id": "i", "trajectory": turns}) == Conversation(messages, may_wait=False)


def test_swe_smith_trajectory() -> None:
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {
            "role": "assistant",
            "content": "I look.",
            "thought": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"c":"ls"}'}}],
        },
        {"role": "tool", "content": [{"type": "text", "text": "x.py"}], "tool_call_ids": ["c1"]},
    ]
    asked, said, result = adapt({"traj_id": "t", "messages": json.dumps(turns)}).messages
    assert asked == USER
    assert said["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"c":"ls"}'}
    assert said.keys() == {"role", "content", "tool_calls"}
    assert result == {"role": "tool", "content": "x.py", "tool_call_id": "c1"}


def test_a_trajectory_file_of_swe_agent_has_its_messages_in_its_history() -> None:
    row = {"trajectory": [{"action": "ls", "observation": "x"}], "history": [USER, ANSWER | {"agent": "main"}]}
    assert adapt(row).messages == (USER, ANSWER)


# columns


def test_columns() -> None:
    assert adapt({"problem": "q", "solution": "s"}) == Conversation((USER,))
    assert adapt({"instruction": "Add.", "input": "1, 2", "output": "3"}).messages[0]["content"] == "Add.\n\n1, 2"
    assert adapt({"instruction": "Add.", "input": " ", "output": "3"}).messages[0]["content"] == "Add."
    assert adapt({"question": "q", "system": "s"}).messages == ({"role": "system", "content": "s"}, USER)
    assert adapt({"prompt": [USER]}) == Conversation((USER,))
    assert refused({"prompt": 7}) == "prompt is not a text"
    assert refused({"problem": " "}) == "problem is empty"


def test_tools_are_sent_as_the_row_declares_them() -> None:
    assert adapt({"query": "q", "tools": [TOOL]}).tools == (TOOL,)
    assert adapt({"query": "q", "tools": json.dumps([TOOL])}).tools == (TOOL,)
    assert adapt({"query": "q", "tools": [{"function": TOOL["function"]}]}).tools == (TOOL,)
    assert adapt({"query": "q", "tools": ""}).tools is None
    assert adapt({"query": "q", "tools": "[]"}).tools is None


def test_tools_of_apigen_get_a_schema() -> None:
    parameters = {
        "city": {"type": "str", "description": "c"},
        "days": {"type": "int, optional", "default": 1},
        "of": {"type": "List[float]"},
        "at": {"type": "Tuple[int, int]"},
    }
    tools = json.dumps([{"name": "w", "description": "d", "parameters": parameters}])
    properties = {
        "city": {"type": "string", "description": "c"},
        "days": {"type": "integer", "default": 1},
        "of": {"type": "array"},
        "at": {},
    }
    declared = {"name": "w", "description": "d", "parameters": {"type": "object", "properties": properties}}
    assert adapt({"query": "q", "tools": tools}).tools == ({"type": "function", "function": declared},)


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ("get_weather", "tools is a text that is not JSON"),
        ({}, "tools is not a list"),
        ([7], "a tool is no function declaration"),
        ([{"type": "function", "function": {"name": ""}}], "a tool has no name"),
        ([{"type": "builtin", "function": {"name": "f"}}], "a tool is of a type that is not known: 'builtin'"),
        ([{"name": "f", "parameters": [1]}], "parameters of a tool are not an object"),
        ([{"name": "f", "parameters": {"a": 1}}], "a parameter of a tool is not described by an object"),
    ],
)
def test_what_is_no_tool(tools: Any, reason: str) -> None:
    assert refused({"query": "q", "tools": tools}) == reason
