"""Requests as the server reads them."""

import json
from typing import Any

import pytest

from kimi_helpers.simulator.chat_request import ChatRequest, RequestError, read_request

HELLO = [{"role": "user", "content": "hello"}]


def read(**fields: Any) -> ChatRequest:
    return read_request(json.dumps({"model": "m", "messages": HELLO, **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, True),
        ({"reasoning": {}}, True),
        ({"reasoning": {"enabled": True}}, True),
        ({"reasoning": {"effort": "high"}}, True),
        ({"reasoning": {"enabled": False}}, False),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning_effort": "none"}, False),
    ],
)
def test_what_switches_thinking_off(fields: dict[str, Any], thinking: bool) -> None:
    assert read(**fields).thinking is thinking


def test_either_name_limits_the_reply() -> None:
    assert read(max_tokens=5).limit == 5
    assert read(max_completion_tokens=6).limit == 6
    assert read().limit is None


def test_past_reasoning_is_handed_to_the_template_under_its_name() -> None:
    past = {"role": "assistant", "content": "a", "reasoning": "r"}
    assert read(messages=[*HELLO, past]).prompt_messages()[1]["reasoning_content"] == "r"
    alias = {"role": "assistant", "content": "a", "reasoning_content": "s"}
    assert read(messages=[*HELLO, alias]).prompt_messages()[1]["reasoning_content"] == "s"


def test_the_subject_is_the_last_user_message() -> None:
    parts = [{"type": "text", "text": "first"}, {"type": "image_url"}, {"type": "text", "text": "last"}]
    assert read().last_text() == "hello"
    assert read(messages=[*HELLO, {"role": "user", "content": parts}]).last_text() == "first  last"
    assert read(messages=[{"role": "system", "content": "be brief"}]).last_text() == ""


def test_tool_choice_leaves_some_functions() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    chosen = {"type": "function", "function": {"name": "g"}}
    for choice, names, forced in ((None, "fg", False), ("auto", "fg", False), ("required", "fg", True),
                                  ("none", "", False), (chosen, "g", True)):  # fmt: skip
        asked = read(tools=tools, tool_choice=choice)
        assert ["".join(function["name"] for function in asked.callable_functions()), asked.must_call()] == [
            names,
            forced,
        ]
    with pytest.raises(RequestError, match="that tools does not declare"):
        read(tools=tools, tool_choice={"type": "function", "function": {"name": "h"}})


def test_a_system_prompt_goes_in_front_where_there_is_none() -> None:
    assert read().prompt_messages("Be kind.")[0] == {"role": "system", "content": "Be kind."}
    own = [{"role": "system", "content": "be brief"}, *HELLO]
    assert read(messages=own).prompt_messages("Be kind.") == read(messages=own).prompt_messages()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"model": "m"}', "messages"),
        (b'{"messages": [{"role": "user"}]}', "model"),
        (b'{"model": "m", "messages": [{}]}', "messages.0.role"),
        (b'{"model": "m", "messages": [{"role": "user", "content": 5}]}', "messages.0.content"),
        (b'{"model": "m", "messages": []}', "messages"),
        (b'{"model": "m", "messages": [{"role": "user"}], "max_tokens": 0}', "max_tokens"),
        (b'{"model": "m", "messages": [{"role": "user"}], "tools": [{"type": "function"}]}', "tool 0"),
        (b'{"model": "m", "messages": [{"role": "user"}], "tool_choice": "required"}', "tool_choice forces a call"),
    ],
)
def test_a_bad_request_is_told_in_a_sentence(body: bytes, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        read_request(body)
