"""Bodies merged into one reply."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.reply_bodies import read_body
from kimi_helpers.reply_merging import Reply, TokenLogprob, ToolCall, Usage, merge_bodies
from tests.reply_samples import CALL, chunk, completion, stream

# Borders that other splitters cut at, whitespace that a parser might strip, a character of four bytes.
TEXTS = st.text(st.sampled_from('ab \n\t\r\u2028\u0085\x1c挑衅辅助é🙂"\\{}'), max_size=12)


def merged(body: bytes) -> Reply:
    exchange = read_body(body)
    assert exchange.problem is None
    return merge_bodies(exchange)


def text_detail(text: str | None, index: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": text, "index": index, "format": "unknown", **more}


def call_piece(index: int | None, arguments: str | None, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}, **more}]}


@pytest.mark.parametrize(
    ("message", "field", "reasoning"),
    [
        ({}, None, None),
        ({"reasoning": None}, None, None),
        ({"reasoning": ""}, "reasoning", ""),
        ({"reasoning": " a\n"}, "reasoning", " a\n"),
        ({"reasoning_content": "a"}, "reasoning_content", "a"),
        ({"reasoning": "", "reasoning_content": "a"}, "reasoning_content", "a"),
        ({"reasoning": "a", "reasoning_content": "a", "reasoning_details": [text_detail("a")]}, "reasoning", "a"),
        ({"reasoning_content": "a", "reasoning_details": [text_detail("a")]}, "reasoning_content", "a"),
        ({"reasoning_details": [text_detail("a"), text_detail("b")]}, "reasoning_details", "ab"),
        ({"reasoning_details": [text_detail("a", None), text_detail(None)]}, "reasoning_details", "a"),
        ({"reasoning_details": []}, None, None),
        (
            {
                "reasoning_details": [
                    {"type": "reasoning.summary", "summary": "s", "index": 0},
                    {"type": "reasoning.encrypted", "data": "d", "text": "d", "index": 0},
                ]
            },
            None,
            None,
        ),
    ],
)
def test_reasoning_is_kept_once_with_its_field(message: Any, field: str | None, reasoning: str | None) -> None:
    reply = merged(completion(message))
    assert (reply.reasoning_field, reply.reasoning) == (field, reasoning)


def test_reasoning_details_merge_by_type_and_index() -> None:
    encrypted = {"type": "reasoning.encrypted", "data": "d", "index": 1}
    reply = merged(
        stream(
            chunk({"reasoning_details": [text_detail("one ", 0)]}),
            chunk({"reasoning_details": [text_detail("three", 2)]}),
            chunk({"reasoning_details": [text_detail("two ", 0), encrypted]}),
        )
    )
    assert (reply.reasoning_field, reply.reasoning) == ("reasoning_details", "one two three")


@pytest.mark.parametrize(
    ("contents", "content"),
    [([None], None), ([""], ""), ([None, ""], ""), ([None, "a", None, " b "], "a b "), (["", "\n", ""], "\n")],
)
def test_null_content_stays_apart_from_empty_content(contents: list[str | None], content: str | None) -> None:
    assert merged(stream(*(chunk({"content": text}) for text in contents))).content == content


def test_lone_surrogates_are_kept() -> None:
    assert merged(completion({"content": "a\ud800b"})).content == "a\ud800b"
    # Halves that a host spread over two chunks are kept as they came too: nothing is joined into one character.
    assert merged(stream(chunk({"content": "\ud83d"}), chunk({"content": "\ude42"}))).content == "\ud83d\ude42"


def test_pieces_of_tool_calls_merge_by_index() -> None:
    reply = merged(
        stream(
            chunk(call_piece(1, "", id="functions.g:1") | {"content": None}),
            chunk({"tool_calls": [{"index": 0, "id": "functions.f:0", "function": {"name": "f"}}]}),
            chunk({"tool_calls": [{"index": 1, "id": "", "function": {"name": "g", "arguments": '{"b"'}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": " {} "}}, {"index": 1, "function": None}]}),
            chunk(call_piece(1, ": 2}", id="functions.g:1")),
        )
    )
    assert reply.tool_calls == (
        ToolCall("functions.f:0", "f", " {} "),
        ToolCall("functions.g:1", "g", '{"b": 2}'),
    )
    assert reply.chunk_texts == ('{"b"', " {} ", ": 2}")


def test_calls_of_a_json_reply_are_told_by_position_and_arguments_are_not_re_serialised() -> None:
    odd = '{"a" :1,\n"a":2, "é": 1e2}'
    calls = [{**CALL, "index": 0}, {"index": 0, "id": None, "function": {"name": "g", "arguments": odd}}]
    assert merged(completion({"tool_calls": calls})).tool_calls == (
        ToolCall("functions.f:0", "f", '{"a": 1}'),
        ToolCall("", "g", odd),
    )


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        ([None, None], ""),
        ([None, "stop", "stop", None], "stop"),
        (["", "tool_calls"], "tool_calls"),
        (["tool_calls", "stop"], "tool_calls"),
        (["stop", "tool_calls"], "stop"),
        (["length", "tool_calls"], "length"),
        (["stop", "length"], "length"),
        (["stop", "odd"], "odd"),
        (["length", "content_filter"], "content_filter"),
        (["length", "stop", "error"], "error"),
    ],
)
def test_finish_reason_of_several_chunks(reasons: list[str | None], finish: str) -> None:
    assert merged(stream(*(chunk({}, reason) for reason in reasons))).finish_reason == finish


def test_distinct_native_finish_reasons_are_kept_in_order() -> None:
    natives = [None, "tool_calls", "tool_calls", "stop", "tool_calls"]
    reply = merged(stream(*(chunk({}, "tool_calls", {"native_finish_reason": native}) for native in natives)))
    assert reply.native_finish_reasons == ("tool_calls", "stop")


WHOLE = {
    "prompt_tokens": 5,
    "completion_tokens": 7,
    "cost": 0.25,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 9},
    "cached_tokens": 4,
}
MOONSHOT = {"prompt_tokens": 5, "completion_tokens": 8, "cached_tokens": 4, "prompt_tokens_details": None}


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (completion({}), None),
        (completion({}, usage=None), None),
        (completion({}, usage={"inputTokens": 5, "prompt_tokens_details": {}}), None),
        # More reasoning than completion tokens is the host's affair: nothing is subtracted.
        (completion({}, usage=WHOLE), Usage(5, 7, 9, 0, 0.25)),
        (completion({}, choice={"usage": MOONSHOT}), Usage(5, 8, None, 4, None)),
        (completion({}, choice={"usage": MOONSHOT}, usage=WHOLE), Usage(5, 7, 9, 0, 0.25)),
        (completion({}, usage={"cost": 1}), Usage(None, None, None, None, 1.0)),
        (stream(chunk({}), {"choices": [], "usage": WHOLE}), Usage(5, 7, 9, 0, 0.25)),
        (stream(chunk({}, usage=MOONSHOT), chunk({}, usage=WHOLE), chunk({}, usage=None)), Usage(5, 7, 9, 0, 0.25)),
        (stream(chunk({}, usage=WHOLE), chunk({}, usage={"prompt_tokens": 6})), Usage(5, 7, 9, 0, 0.25)),
        (stream(chunk({}, "stop", {"usage": MOONSHOT})), Usage(5, 8, None, 4, None)),
    ],
)
def test_usage_wherever_a_host_puts_it(body: bytes, usage: Usage | None) -> None:
    assert merged(body).usage == usage


def test_the_last_generation_id_counts() -> None:
    reply = merged(stream(chunk({}, id="chatcmpl-own"), chunk({}, id="gen-2"), chunk({}, id="gen-2"), chunk({}, id="")))
    assert reply.generation_id == "gen-2"


def test_blank_names_are_none() -> None:
    reply = merged(stream(chunk({}, provider="", model=""), chunk({}, provider=None)))
    assert (reply.provider, reply.model) == (None, "m")


def test_logprobs_of_all_chunks() -> None:
    first = {"logprobs": {"content": [{"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": []}]}}
    second = {"logprobs": {"content": [{"token": "b", "logprob": -1, "bytes": None}]}}
    reply = merged(stream(chunk({}, None, first), chunk({}, None, {"logprobs": None}), chunk({}, "stop", second)))
    assert reply.logprobs == (TokenLogprob("é", -0.5, b"\xc3\xa9"), TokenLogprob("b", -1.0, None))
    assert merged(completion({}, choice={"logprobs": {"content": None}})).logprobs is None
    assert merged(completion({}, choice={"logprobs": {"content": []}})).logprobs == ()


@pytest.mark.parametrize(
    ("body", "ids", "prompt_ids"),
    [
        (completion({}), None, None),
        (completion({}, choice={"token_ids": [1, 2]}, prompt_token_ids=[3]), (1, 2), (3,)),
        (completion({}, choice={"output_ids": [1, 2], "prompt_token_ids": [4]}), (1, 2), (4,)),
        (completion({}, choice={"meta_info": {"output_ids": [1, 2]}}), (1, 2), None),
        (
            stream(
                chunk({"role": "assistant", "content": ""}, prompt_token_ids=[3]),
                chunk({"reasoning": "a"}, None, {"token_ids": [1]}),
                chunk({}, None, {"token_ids": [2]}),
                chunk({"content": "b"}, "stop", {"token_ids": [5, 6]}),
                {"choices": [], "usage": {}},
            ),
            (1, 2, 5, 6),
            (3,),
        ),
        # A chunk with text and no ids: a gap.
        (stream(chunk({"content": "a"}, None, {"token_ids": [1]}), chunk({"content": "b"}, "stop")), None, None),
        (stream(chunk(call_piece(0, "{")), chunk({}, "stop", {"token_ids": [1]})), None, None),
        # Whether SGLang's ids of a stream repeat those before is not documented.
        (stream(chunk({"content": "a"}, "stop", {"output_ids": [1]})), None, None),
    ],
)
def test_ids_of_an_engine(body: bytes, ids: tuple[int, ...] | None, prompt_ids: tuple[int, ...] | None) -> None:
    reply = merged(body)
    assert (reply.engine_token_ids, reply.engine_prompt_token_ids) == (ids, prompt_ids)


def test_chunk_texts_are_the_pieces_in_order_of_arrival() -> None:
    reply = merged(
        stream(
            chunk({"content": "", "reasoning_content": " a", "reasoning_details": [text_detail(" a")]}),
            chunk({"content": "b", "reasoning_content": None}),
            chunk(call_piece(0, "{}", id="i")),
        )
    )
    assert reply.chunk_texts == (" a", "b", "{}")
    assert merged(completion({"content": "b"})).chunk_texts == ()


@settings(deadline=None)
@given(reasoning=TEXTS, content=TEXTS, arguments=TEXTS, data=st.data())
def test_a_stream_says_what_the_json_reply_says(
    reasoning: str, content: str, arguments: str, data: st.DataObject
) -> None:
    def cut(text: str) -> list[str]:
        places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]

    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    call = {"id": "functions.f:0", "function": {"name": "f", "arguments": arguments}}
    whole = merged(
        completion({"reasoning": reasoning, "content": content, "tool_calls": [call]}, "tool_calls", usage=usage)
    )
    streamed = merged(
        stream(
            *(chunk({"reasoning": piece}) for piece in cut(reasoning)),
            *(chunk({"content": piece}) for piece in cut(content)),
            chunk({"tool_calls": [{"index": 0, "id": "functions.f:0", "function": {"name": "f"}}]}),
            *(chunk(call_piece(0, piece)) for piece in cut(arguments)),
            chunk({"content": ""}, "tool_calls", usage=usage),
        )
    )
    assert whole.reasoning == reasoning
    assert whole.content == content
    assert whole.tool_calls == (ToolCall("functions.f:0", "f", arguments),)
    assert "".join(streamed.chunk_texts) == reasoning + content + arguments
    fields = [name for name in Reply.__annotations__ if name not in ("transport", "chunk_texts")]
    assert [getattr(streamed, name) for name in fields] == [getattr(whole, name) for name in fields]
