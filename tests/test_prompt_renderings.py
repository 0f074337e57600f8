"""The renderings tried: each deviation alone against a hand-written request that says the same, and the data file."""

import tomllib
from typing import Any

import pytest

from kimi_helpers.formats import FORMATS, PromptError
from kimi_helpers.prompt_renderings import default_system_prompts, renderings
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary, special_tables
from kimi_helpers.workspace import DATA

K2, K25, K26 = FORMATS["kimi-k2"], FORMATS["kimi-k2.5"], FORMATS["kimi-k2.6"]
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Add 2 and 3"}
TOOL = {
    "function": {"strict": False, "description": "Adds", "name": "add", "parameters": {"type": "object"}},
    "type": "function",
    "cache": True,
}


def call_message(arguments: str, **more: Any) -> dict[str, Any]:
    call = {"id": "functions.add:0", "type": "function", "function": {"name": "add", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


RESULT = {"role": "tool", "tool_call_id": "functions.add:0", "content": "5"}


def only(found: dict[tuple[int, ...], tuple[str, ...]], *names: str) -> list[int]:
    [ids] = [ids for ids, deviations in found.items() if deviations == names]
    return list(ids)


def test_every_default_system_prompt_adds_the_tokens_that_its_row_says(kimi: Vocabulary) -> None:
    rows = tomllib.loads((DATA / "default_system_prompts.toml").read_text("utf-8"))["prompt"]
    assert [(row["text"], row["tokens"]) for row in rows] == [
        ("You are a helpful assistant", 9),
        ("You are Kimi, an AI assistant created by Moonshot AI.", 18),
    ]
    assert all(row.keys() == {"text", "tokens", "seen"} and row["seen"] for row in rows)
    bare = len(K25.prompt_ids(kimi, [USER]))
    for row in rows:
        assert len(K25.prompt_ids(kimi, [{"role": "system", "content": row["text"]}, USER])) == bare + row["tokens"]


@pytest.mark.parametrize("name", special_tables())
def test_a_default_system_prompt_is_added_replaced_or_left_out(name: str) -> None:
    format, vocabulary = FORMATS[name], load_vocabulary(format=name)
    found = renderings({"messages": [USER]}, vocabulary, format)
    with_system = {
        tuple(format.prompt_ids(vocabulary, [{"role": "system", "content": text}, USER])): text
        for text in default_system_prompts()
    }
    user_only = with_system.keys() ^ found.keys()
    assert len(found) == 3
    assert with_system.keys() < found.keys()
    assert [vocabulary.decode(ids).startswith("<|im_user|>") for ids in user_only] == [True]
    assert next(iter(found)) == tuple(format.prompt_ids(vocabulary, [USER]))
    assert len(renderings({"messages": [SYSTEM, USER]}, vocabulary, format)) == 1


def test_tools_are_declared_in_the_ways_that_hosts_declare_them() -> None:
    vocabulary = load_vocabulary(format="kimi-k2")
    found = renderings({"messages": [SYSTEM, USER], "tools": [TOOL]}, vocabulary, K2)
    declared = {
        (): '[{"function": {"strict": false, "description": "Adds", "name": "add", "parameters": {"type": "object"}},'
        ' "type": "function", "cache": true}]',
        ("tools without strict",): '[{"function": {"description": "Adds", "name": "add", "parameters":'
        ' {"type": "object"}}, "type": "function", "cache": true}]',
        ("tools with the fields of a typed request alone",): '[{"type": "function", "function": {"name": "add",'
        ' "description": "Adds", "parameters": {"type": "object"}}}]',
        ("tools as compact JSON",): '[{"function":{"strict":false,"description":"Adds","name":"add",'
        '"parameters":{"type":"object"}},"type":"function","cache":true}]',
        ("tools without strict", "tools as compact JSON"): '[{"function":{"description":"Adds","name":"add",'
        '"parameters":{"type":"object"}},"type":"function","cache":true}]',
        ("tools with the fields of a typed request alone", "tools as compact JSON"): '[{"type":"function",'
        '"function":{"name":"add","description":"Adds","parameters":{"type":"object"}}}]',
    }
    rest = K2.prompt_ids(vocabulary, [SYSTEM, USER])
    assert {names: ids for ids, names in found.items()} == {
        names: tuple(vocabulary.encode(f"<|im_system|>tool_declare<|im_middle|>{text}<|im_end|>", specials=True) + rest)
        for names, text in declared.items()
    }


def test_past_arguments_and_past_reasoning_are_rendered_as_hosts_change_them(kimi: Vocabulary) -> None:
    sent = '{"a":2, "b":"é"}'
    messages = [SYSTEM, USER, call_message(sent, reasoning="I add.\n"), RESULT]

    def with_call(message: dict[str, Any]) -> list[int]:
        return K25.prompt_ids(kimi, [SYSTEM, USER, message, RESULT])

    found = renderings({"messages": messages}, kimi, K25)
    kept = {"reasoning_content": "I add.\n"}
    assert only(found) == with_call(call_message(sent, **kept))
    spaced, compact = '{"a": 2, "b": "é"}', '{"a":2,"b":"é"}'
    assert only(found, "past arguments written with blanks") == with_call(call_message(spaced, **kept))
    assert only(found, "past arguments written without blanks") == with_call(call_message(compact, **kept))
    assert only(found, "past reasoning left out") == with_call(call_message(sent))
    assert only(found, "past arguments written with blanks", "past reasoning left out") == with_call(
        call_message(spaced)
    )
    assert len(found) == 6


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000, '{"a": NaN'])
def test_arguments_that_are_no_json_stay_as_they_are(kimi: Vocabulary, arguments: str) -> None:
    messages = [SYSTEM, USER, call_message(arguments), RESULT]
    assert list(renderings({"messages": messages}, kimi, K25)) == [tuple(K25.prompt_ids(kimi, messages))]


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "I add.", "reasoning": "other"},
        {"reasoning": "I add."},
        {"reasoning_content": "", "reasoning": "I add."},
        {"reasoning_details": [{"type": "reasoning.text", "text": "I "}, {"text": "add."}, {"data": "x"}, None]},
    ],
)
def test_past_reasoning_is_read_from_every_field_that_may_carry_it(kimi: Vocabulary, fields: dict[str, Any]) -> None:
    found = renderings({"messages": [SYSTEM, USER, call_message("{}", **fields), RESULT]}, kimi, K25, most=0)
    assert "<think>I add.</think>" in kimi.decode(next(iter(found)))


def test_reasoning_of_a_user_is_no_reasoning(kimi: Vocabulary) -> None:
    found = renderings({"messages": [SYSTEM, {**USER, "reasoning": "I add."}]}, kimi, K25)
    assert list(found) == [tuple(K25.prompt_ids(kimi, [SYSTEM, USER]))]


def test_spelled_special_tokens_are_read_both_ways(kimi: Vocabulary) -> None:
    messages = [SYSTEM, {"role": "user", "content": "What is </think>?"}]
    found = renderings({"messages": messages}, kimi, K25)
    assert only(found) == K25.prompt_ids(kimi, messages)
    recognised = K25.prompt_ids(kimi, messages, recognise_specials=True)
    assert only(found, "special tokens in text recognised") == recognised
    end = kimi.special_id("</think>")
    assert [ids.count(end) for ids in (only(found), recognised)] == [0, 1]


@pytest.mark.parametrize(
    "switch", [{"chat_template_kwargs": {"preserve_thinking": True}}, {"thinking": {"type": "enabled", "keep": "all"}}]
)
def test_k26_keeps_past_thinking_where_the_request_asks_for_it(switch: dict[str, Any]) -> None:
    vocabulary = load_vocabulary(format="kimi-k2.6")
    messages = [SYSTEM, USER, {"role": "assistant", "content": "5", "reasoning_content": "I add."}, USER]
    for body, preserve in (({}, False), (switch, True)):
        found = renderings({"messages": messages, **body}, vocabulary, K26, most=0)
        assert list(found) == [tuple(K26.prompt_ids(vocabulary, messages, preserve_thinking=preserve))]
    found = renderings({"messages": messages, **switch}, vocabulary, K25, most=0)
    assert list(found) == [tuple(K25.prompt_ids(vocabulary, messages))]


def test_thinking_switched_off_closes_the_think_section(kimi: Vocabulary) -> None:
    [ids] = renderings({"messages": [SYSTEM, USER]}, kimi, K25, thinking=False)
    assert kimi.decode(ids).endswith("<think></think>")


@pytest.mark.parametrize(
    ("request_body", "problem"),
    [
        ({}, "messages is no list"),
        ({"messages": []}, "messages is no list"),
        ({"messages": ["hi"]}, "messages is no list"),
        ({"messages": [USER], "tools": 5}, "tools is no list"),
        ({"messages": [USER], "tools": ["add"]}, "tools is no list"),
        ({"messages": [{"role": "user", "content": [{"text": "no type"}]}]}, "message 0 lacks 'type'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "holds an image"),
        ({"messages": [call_message("{}") | {"tool_calls": [{"function": {}}]}]}, "message 0 lacks 'id'"),
    ],
)
def test_what_cannot_be_rendered_is_named(kimi: Vocabulary, request_body: dict[str, Any], problem: str) -> None:
    with pytest.raises(PromptError, match=problem):
        renderings(request_body, kimi, K25)


def test_a_vocabulary_without_the_formats_tokens_is_named() -> None:
    with pytest.raises(PromptError, match=r"names no special token '<think>'; load the table of kimi-k2\.5\."):
        renderings({"messages": [USER]}, load_vocabulary(format="kimi-k2"), K25)
