"""Turns of public datasets as messages of the API: roles, calls, results, and what is refused."""

import json
from typing import Any

import pytest

from kimi_helpers.dataset_messages import call_of, decoded, messages_of, said_by_user
from kimi_helpers.dataset_rows import RowError


def call(name: str, arguments: str, id: str | None) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_speakers_of_each_format() -> None:
    turns = [
        {"role": "system", "content": "s"},
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"role": "user", "text": "c"},
        {"role": "ai", "text": "d", "mask": True},
        {"role": "assistant", "content": "e", "reasoning_content": "r", "agent": "main", "name": "n"},
    ]
    assert messages_of(turns, "m") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
        {"role": "assistant", "content": "e", "reasoning_content": "r", "name": "n"},
    ]
    assert messages_of(json.dumps(turns), "m") == messages_of(turns, "m")


def test_calls_without_ids_get_those_of_kimi_and_results_those_of_their_calls() -> None:
    turns = [
        {"from": "human", "value": "q"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
        {"from": "observation", "value": "1"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "g", "arguments": {"y": "é"}}}, {"function": {"name": "f"}}],
        },
        {"role": "tool", "content": "2"},
        {"role": "tool", "content": "3"},
    ]
    asked, first, one, second, two, three = messages_of(turns, "m")
    assert asked == {"role": "user", "content": "q"}
    assert first == {"role": "assistant", "content": "", "tool_calls": [call("f", '{"x": 1}', "functions.f:0")]}
    assert one == {"role": "tool", "content": "1", "tool_call_id": "functions.f:0"}
    assert second["content"] is None
    assert second["tool_calls"] == [call("g", '{"y": "é"}', "functions.g:1"), call("f", "{}", "functions.f:2")]
    assert [two["tool_call_id"], three["tool_call_id"]] == ["functions.g:1", "functions.f:2"]


def test_ids_that_stand_are_kept_and_tell_which_call_is_answered() -> None:
    turns = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": json.dumps([call("f", "{}", "call_a"), call("f", "{}", "call_b")]),
        },
        {"role": "tool", "content": "b", "tool_call_ids": ["call_b"]},
        {"role": "tool", "content": "a"},
    ]
    *_, said, b, a = messages_of(turns, "m")
    assert said["tool_calls"] == [call("f", "{}", "call_a"), call("f", "{}", "call_b")]
    assert [b["tool_call_id"], a["tool_call_id"]] == ["call_b", "call_a"]


def test_arguments_written_as_text_are_kept_to_the_letter() -> None:
    turns = [{"role": "assistant", "content": "", "tool_calls": [call("f", '{ "x":1.0}', None)]}]
    assert messages_of(turns, "m")[0]["tool_calls"][0]["function"]["arguments"] == '{ "x":1.0}'


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("""{"name": "f", "arguments": '{"city": "Riga"}'}""", '{"city": "Riga"}'),
        ("""{"name": "f", "arguments": '{"who": "Ann\\'s"}'}""", '{"who": "Ann\'s"}'),
        ('{"name": "f", "arguments": {"a": {"b": "}"}}}', '{"a": {"b": "}"}}'),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f"}', "{}"),
        (' {"name" : "f" , "arguments" :  {} } ', "{}"),
    ],
)
def test_a_call_as_glaive_writes_it(text: str, arguments: str) -> None:
    assert call_of(text) == call("f", arguments, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(1)", "a function call cannot be read: 'f(1)'"),
        ('{"name": "f", "arguments": {} and more}', "the arguments of a function call are not JSON"),
        ('{"name": "f", "arguments": [1]}', "the arguments of a function call are not an object: '[1]'"),
        ('{"name": "f", "arguments": ' + "[" * 100_000 + "}", "the arguments of a function call are not JSON"),
        ('{"name": "f", "arguments": ' + " " * 100_000, "a function call cannot be read"),
    ],
)
def test_a_call_that_cannot_be_read(text: str, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        call_of(text)
    assert str(caught.value).startswith(reason)
    assert len(str(caught.value)) < 200


def test_parts_of_content() -> None:
    def content(*parts: Any) -> Any:
        return messages_of([{"role": "user", "content": list(parts)}], "m")[0]["content"]

    text = {"type": "text", "text": "a", "cache_control": None}
    assert content(text) == "a"
    assert content(text, text) == [{"type": "text", "text": "a"}] * 2
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    assert content(image) == [image]


USER = {"role": "user", "content": "q"}


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (None, "m is not a list"),
        ("[", "m is a text that is not JSON"),
        ({}, "m is not a list"),
        ([], "m is empty"),
        (["q"], "message 1 is not an object"),
        ([USER, {"content": "q"}], "message 2 has no role that is known: 'None'"),
        ([{"role": ["user"], "content": "q"}], "message 1 has no role that is known: \"['user']\""),
        ([{"role": "robot", "content": "q"}], "message 1 has no role that is known: 'robot'"),
        ([{"role": "user"}], "message 1 has no content"),
        ([{"role": "user", "content": " \n"}], "message 1 of the user is empty"),
        ([{"role": "user", "content": []}], "the content of message 1 is neither a text nor a list of parts"),
        ([{"role": "user", "content": 7}], "the content of message 1 is neither a text nor a list of parts"),
        ([USER | {"name": 7}], "name of message 1 is not a text"),
        ([{"role": "assistant", "content": "", "tool_calls": 7}], "tool_calls of message 1 is not a list"),
        ([{"role": "assistant", "content": "", "tool_calls": [7]}], "a tool call of message 1 names no function"),
        (
            [{"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "f"}}]}],
            "the id of a tool call of message 1 is not a text",
        ),
        ([USER, {"role": "tool", "content": "1"}], "a tool's result answers no call"),
    ],
)
def test_what_is_no_message(turns: Any, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        messages_of(turns, "m")
    assert str(caught.value) == reason


def test_small_helpers() -> None:
    assert decoded(7, "x") == 7
    assert decoded('{"a": [1]}', "x") == {"a": [1]}
    with pytest.raises(RowError, match="problem is not a text"):
        said_by_user(7, "problem")
