"""Replies and classified failures."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.formats import BEGIN_SECTION
from kimi_helpers.replies import Failure, FailureKind, Reply, ToolCall, parse_reply
from tests.reply_samples import CALL, chunk, completion, json_body, stream

ERROR = {"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "Q"}}}
TEXT = chunk({"content": "a"})
END = chunk({"content": ""}, "stop")


def failure(body: bytes, status: int | None = 200) -> Failure:
    result = parse_reply(body, status=status)
    assert isinstance(result, Failure)
    return result


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (json_body(ERROR), 429, FailureKind.HTTP_ERROR),
        (b"<html>bad gateway</html>", 502, FailureKind.HTTP_ERROR),
        (completion({"content": "a"}), 500, FailureKind.HTTP_ERROR),
        (stream(ERROR, done=False), 503, FailureKind.HTTP_ERROR),
        (b"", 302, FailureKind.HTTP_ERROR),
        (json_body(ERROR), None, FailureKind.ERROR_BODY),
        (json_body(ERROR), 200, FailureKind.ERROR_IN_200),
        (completion({"content": "a"}, **ERROR), 200, FailureKind.ERROR_IN_200),
        (completion({"content": "a"}, None, choice=ERROR), 200, FailureKind.CHOICE_ERROR),
        (completion({"content": "a"}, None, choice=ERROR), None, FailureKind.CHOICE_ERROR),
        (completion({"content": "a"}, "error"), 200, FailureKind.CHOICE_ERROR),
        (stream(ERROR, done=False), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, ERROR, done=False), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, END, ERROR), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, chunk({}, "error", **ERROR), done=False), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, chunk({}, "length"), chunk({}, "length", ERROR)), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, chunk({}, "error"), done=False), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, ERROR, done=False) + b"data: {]\n\n", 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, END) + b"data: " + json_body(ERROR), 200, FailureKind.STREAM_ERROR),
        (stream(TEXT, done=False), 200, FailureKind.STREAM_CUT),
        (stream(TEXT, END, done=False), 200, FailureKind.STREAM_CUT),
        (stream(TEXT, END, done=False) + b"data: [DON", 200, FailureKind.STREAM_CUT),
        (b": PROCESSING\n\n", 200, FailureKind.STREAM_CUT),
        (b"", 200, FailureKind.MALFORMED),
        (b"[" * 10_000, 200, FailureKind.MALFORMED),
        (completion({"content": "a"})[:-1], 200, FailureKind.MALFORMED),
        (stream(TEXT, chunk({}, provider="Other"), END), 200, FailureKind.MALFORMED),
        (stream(TEXT, chunk({}, model="other"), END), 200, FailureKind.MALFORMED),
        (json_body({"data": [{"id": "m"}]}), 200, FailureKind.NOT_CHAT_COMPLETION),
        (json_body([]), None, FailureKind.NOT_CHAT_COMPLETION),
        (
            json_body(
                {"choices": [{"index": i, "message": {"content": "a"}, "finish_reason": "stop"} for i in (0, 1)]}
            ),
            200,
            FailureKind.SEVERAL_CHOICES,
        ),
        (stream(TEXT, chunk({"content": "b"}, "stop", {"index": 1}), END), 200, FailureKind.SEVERAL_CHOICES),
        (completion({"content": None, "refusal": "no"}), 200, FailureKind.UNSUPPORTED_CONTENT),
        (completion({"function_call": {"name": "f"}}), 200, FailureKind.UNSUPPORTED_CONTENT),
        (completion({"reasoning": "a", "reasoning_content": "b"}), 200, FailureKind.CONFLICTING_REASONING),
        (
            completion({"reasoning": "a ", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]}),
            200,
            FailureKind.CONFLICTING_REASONING,
        ),
        (completion({"content": "a"}, None), 200, FailureKind.FINISH_MISSING),
        (completion({"content": "a"}, ""), 200, FailureKind.FINISH_MISSING),
        (json_body({"choices": []}), 200, FailureKind.FINISH_MISSING),
        (json_body({"choices": None}), 200, FailureKind.FINISH_MISSING),
        (stream(TEXT), 200, FailureKind.FINISH_MISSING),
        (stream(), 200, FailureKind.FINISH_MISSING),
        (completion({"content": "a"}, "end_turn"), 200, FailureKind.UNKNOWN_FINISH),
        (completion({"content": "a"}, "function_call"), 200, FailureKind.UNKNOWN_FINISH),
        (completion({"content": ""}, "content_filter"), 200, FailureKind.CONTENT_FILTER),
        (completion({"content": None}), 200, FailureKind.EMPTY),
        (completion({"content": "", "reasoning": "", "tool_calls": []}, "length"), 200, FailureKind.EMPTY),
        (stream(chunk({"content": ""}), chunk({}, "tool_calls")), 200, FailureKind.EMPTY),
        (completion({"content": None, "reasoning": "a"}), 200, FailureKind.EMPTY_ANSWER),
        (completion({"content": "", "reasoning": "a</think>"}), 200, FailureKind.EMPTY_ANSWER),
        (completion({"content": "", "reasoning": "a"}, "tool_calls"), 200, FailureKind.EMPTY_ANSWER),
    ],
)
def test_kind_of_a_failure(body: bytes, status: int | None, kind: FailureKind) -> None:
    assert failure(body, status).kind == kind


@pytest.mark.parametrize(
    "pieces",
    [
        [{"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {}}],
        [{"id": "a", "function": {"name": "f"}}, {"function": {"name": "g"}}],
        [{"id": "a", "function": {"arguments": "{}"}}],
        [{"id": "a"}],
    ],
)
def test_pieces_of_a_call_that_contradict_each_other_are_malformed(pieces: list[dict[str, Any]]) -> None:
    chunks = [chunk({"tool_calls": [{"index": 0, **piece}]}) for piece in pieces]
    assert failure(stream(*chunks, chunk({}, "tool_calls"))).kind == FailureKind.MALFORMED


def test_a_streamed_piece_of_a_call_needs_its_index() -> None:
    body = stream(chunk({"tool_calls": [CALL]}), chunk({}, "tool_calls"))
    assert "no index" in failure(body).message


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (completion({"content": " \n"}), " \n"),
        (completion({"content": "thought</think>answer"}), "thought</think>answer"),
        (stream(chunk({"content": "a\u2028b\u0085c\x1cd"}), END), "a\u2028b\u0085c\x1cd"),
        (stream(chunk({"content": "挑衅 辅助"}), END), "挑衅 辅助"),
        (stream(TEXT, END)[:-2], "a"),
        (stream(TEXT, END).replace(b"\n", b"\r\n"), "a"),
        (stream(TEXT, END, {"choices": [], "usage": {"completion_tokens": 2}}), "a"),
        (completion({"content": "a", "refusal": "", "function_call": None}), "a"),
        (completion({"content": "a"}, choice={"index": 1}), "a"),
    ],
)
def test_content_of_a_reply(body: bytes, text: str) -> None:
    reply = parse_reply(body)
    assert isinstance(reply, Reply)
    assert (reply.content, reply.finish_reason) == (text, "stop")


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": None, "reasoning": "cut"}, "length"),
        ({"content": None, "reasoning": f"I call it. {BEGIN_SECTION}"}, "stop"),
        ({"content": None, "reasoning": "thought</think>answer"}, "stop"),
        ({"content": None, "tool_calls": [CALL]}, "tool_calls"),
        ({"content": None, "reasoning": "a", "tool_calls": [CALL]}, "stop"),
    ],
)
def test_what_has_no_content_and_is_a_reply_all_the_same(message: dict[str, Any], finish: str) -> None:
    reply = parse_reply(completion(message, finish))
    assert isinstance(reply, Reply)
    assert (reply.content, reply.reasoning, reply.finish_reason) == (None, message.get("reasoning"), finish)


def test_a_failure_keeps_what_there_was_for_a_reader() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    found = failure(stream(chunk({"reasoning": "r"}), chunk({"content": "a"}, usage=usage), ERROR, done=False))
    assert (found.code, found.provider, found.model, found.generation_id) == (502, "Q", "m", "gen-1")
    assert (found.status, found.transport) == (200, "sse")
    assert found.usage is not None
    assert found.usage.completion_tokens == 2
    assert found.partial is not None
    assert (found.partial.reasoning, found.partial.content, found.partial.finish_reason) == ("r", "a", "")


def test_a_failure_without_text_has_no_partial_reply() -> None:
    found = failure(json_body(ERROR))
    assert (found.partial, found.usage, found.provider, found.transport) == (None, None, "Q", "json")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (json_body(ERROR), 429, "HTTP 429: Provider returned error"),
        (json_body(ERROR), 200, "the host reports an error 502: Provider returned error"),
        (b"", 502, "HTTP 502: no error in the body (it is empty)"),
        (
            completion({"reasoning": "ab", "reasoning_content": "a"}),
            200,
            "the reasoning fields disagree (reasoning 2 characters, reasoning_content 1 characters): none is trusted",
        ),
        (
            stream(TEXT, chunk({}, provider="Other")),
            200,
            "one reply names two providers: 'P' and 'Other'",
        ),
        (
            json_body({"error": {"message": "Key sk-or-v1-0123456789abcdef\n\x1b[31mis\u2028 wrong \ud800"}}),
            401,
            "HTTP 401: Key sk-(removed) [31mis wrong",
        ),
    ],
)
def test_message_is_one_line_that_is_safe_to_print(body: bytes, status: int, message: str) -> None:
    assert failure(body, status).message == message


def test_a_long_message_is_cut() -> None:
    message = failure(json_body({"error": {"message": "x" * 1000}})).message
    assert len(message) == 300
    assert message.endswith("x…")


SAMPLES = [
    completion(
        {"reasoning": " r", "content": "挑 a", "tool_calls": [CALL]},
        "tool_calls",
        usage={"prompt_tokens": 1, "completion_tokens": 2},
    ),
    stream(
        chunk({"reasoning": " r", "reasoning_details": [{"type": "reasoning.text", "text": " r", "index": 0}]}),
        chunk({"content": "挑 a"}, None, {"token_ids": [1], "logprobs": None}),
        chunk({"tool_calls": [{**CALL, "index": 0}]}, "tool_calls"),
        chunk({}, "tool_calls", usage={"prompt_tokens": 1, "completion_tokens": 2}),
    ),
]


@pytest.mark.parametrize("body", SAMPLES)
def test_a_reply_cut_anywhere_is_never_a_reply(body: bytes) -> None:
    needed = len(body.rstrip())
    assert isinstance(parse_reply(body[:needed]), Reply)
    assert [end for end in range(needed) if not isinstance(parse_reply(body[:end]), Failure)] == []


def check_total(body: bytes, status: int | None = 200) -> None:
    result = parse_reply(body, status=status)
    if isinstance(result, Failure):
        assert result.message.isprintable()
        assert 0 < len(result.message) <= 300
    else:
        assert result.finish_reason in ("stop", "tool_calls", "length")
        assert result.reasoning or result.content or result.tool_calls


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(body=st.binary(max_size=80), status=st.none() | st.integers(100, 599))
def test_any_bytes_give_a_reply_or_a_failure(body: bytes, status: int | None) -> None:
    check_total(body, status)
    check_total(b"data: " + body, status)


@settings(deadline=None)
@given(document=JSON_VALUES)
def test_any_json_gives_a_reply_or_a_failure(document: Any) -> None:
    text = json.dumps(document).encode()
    check_total(text)
    check_total(b"data: " + text + b"\n\ndata: [DONE]\n\n")


@settings(deadline=None, max_examples=300)
@given(body=st.sampled_from(SAMPLES), data=st.data())
def test_damaged_bytes_give_a_reply_or_a_failure(body: bytes, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    check_total(body[:start] + data.draw(st.binary(max_size=4)) + body[end:])


def paths(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [here, *(path for key, value in inner for path in paths(value, (*here, key)))]


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_any_value_at_any_place_gives_a_reply_or_a_failure(data: st.DataObject) -> None:
    document = json.loads(SAMPLES[0])
    *way, last = data.draw(st.sampled_from(paths(document)[1:]))
    node = document
    for step in way:
        node = node[step]
    node[last] = data.draw(JSON_VALUES)
    text = json.dumps(document).encode()
    check_total(text)
    check_total(b"data: " + text.replace(b'"message"', b'"delta"') + b"\n\ndata: [DONE]\n\n")


# What a reader finds in each recorded body: kind of failure or finish reason; provider, model, completion tokens;
# the reasoning as length, first and last character; the length of the content (None: null); the ids of the calls.
Row = tuple[str, str | None, str | None, int | None, tuple[int, str, str] | None, int | None, tuple[str, ...]]
K25 = "moonshotai/kimi-k2.5-0127"
K2 = "moonshotai/kimi-k2"
K2_0905 = "moonshotai/kimi-k2-0905"
GROQ = "moonshotai/kimi-k2-instruct-0905"
NOTHING: tuple[None, None, tuple[str, ...]] = (None, None, ())
RECORDED: dict[str, Row] = {
    "avian_kimi-k2.5_simple_streaming_0.sse": (
        *("stop", None, "moonshotai/kimi-k2.5", 242),
        *((883, "T", " "), 48, ()),
    ),
    "avian_kimi-k2.5_tool_streaming_0.sse": (
        *("tool_calls", None, "moonshotai/kimi-k2.5", 96),
        *((332, "T", " "), 2, ("functions.weather:0",)),
    ),
    "avian_kimi-k2.5_tool_streaming_1.sse": (
        *("stop", None, "moonshotai/kimi-k2.5", 161),
        *((417, "T", " "), 272, ()),
    ),
    "bedrock_kimi-k2-thinking_tool_0.json": ("not_chat_completion", None, None, None, *NOTHING),
    "groq_kimi-k2-0905_multi_tool_0.json": (
        *("tool_calls", None, GROQ, 53),
        *(None, 38, ("functions.add:0", "functions.multiply:1")),
    ),
    "groq_kimi-k2-0905_multi_tool_1.json": ("stop", None, GROQ, 31, None, 79, ()),
    "hf-router_kimi-k2-0905_tool_streaming_0.sse": (
        *("tool_calls", None, GROQ, 21),
        *(None, None, ("functions.weather:0",)),
    ),
    "or_empty_content_length.json": (
        *("empty", "Chutes", "mistralai/mistral-small-3.1-24b-instruct", 500),
        *NOTHING,
    ),
    "or_err_200_choice_error_partial.json": (
        *("choice_error", "Nebius", "nousresearch/hermes-4-405b", 972),
        *((3473, "\n", "\n"), 1352, ()),
    ),
    "or_err_200_json_error_connection.json": ("error_in_200", "DeepInfra", None, None, *NOTHING),
    "or_err_200_sse_error_no_choices.sse": ("stream_error", "Venice", None, None, *NOTHING),
    "or_err_400_context_length.json": ("http_error", None, None, None, *NOTHING),
    "or_err_400_stream_request.json": ("http_error", "Google AI Studio", None, None, *NOTHING),
    "or_err_401.json": ("http_error", None, None, None, *NOTHING),
    "or_err_404_data_policy.json": ("http_error", None, None, None, *NOTHING),
    "or_err_429_upstream_kimi-dev.json": ("http_error", None, None, None, *NOTHING),
    "or_finish_null_truncated.json": (
        *("finish_missing", "xAI", "x-ai/grok-code-fast-1", 10),
        *((134, "F", "\n"), 30, ()),
    ),
    "or_glm-4.6_reasoning_0.json": ("stop", "BaseTen", "z-ai/glm-4.6", 2801, (5957, "1", "."), 6594, ()),
    "or_kimi-k2-0905_basic.json": ("stop", "SiliconFlow", K2_0905, 9, None, 32, ()),
    "or_kimi-k2-0905_object_basic.json": (
        *("tool_calls", "AtlasCloud", K2_0905, 26),
        *(None, 0, ("functions.structured_output:0",)),
    ),
    "or_kimi-k2-0905_streaming.sse": ("stop", "BaseTen", K2_0905, 14, None, 61, ()),
    "or_kimi-k2.5_multi_tool_0.json": (
        *("tool_calls", "Chutes", K25, 86),
        *((199, " ", "."), None, ("functions.add:0", "functions.multiply:1")),
    ),
    "or_kimi-k2.5_simple_0.json": ("stop", "Inceptron", K25, 202, (596, " ", "."), 130, ()),
    "or_kimi-k2.5_simple_streaming_0.sse": ("stop", "ModelRun", K25, 173, (610, " ", " "), 46, ()),
    "or_kimi-k2.5_tool_0.json": (
        *("tool_calls", "Chutes", K25, 66),
        *((219, " ", "."), None, ("functions.weather:0",)),
    ),
    "or_kimi-k2.5_tool_1.json": ("stop", "Chutes", K25, 67, (201, " ", "."), 80, ()),
    "or_kimi-k2_basic.json": ("stop", "Together", K2, 10, None, 32, ()),
    "or_kimi-k2_multi_tool.json": ("tool_calls", "Moonshot AI", K2, 31, None, 56, ("get_weather:0",)),
    "or_kimi-k2_no_tool.json": ("stop", "DeepInfra", K2, 20, None, 88, ()),
    "or_kimi-k2_object_streaming.sse": (
        *("tool_calls", "Together", K2, 42),
        *(None, 48, ("call_bfdru0waycx7uptgesza74cc",)),
    ),
    "or_kimi-k2_streaming.sse": ("stop", "Novita", K2, 9, None, 46, ()),
    "or_kimi-k2_token_limit.json": ("length", "DeepInfra", K2, 100, None, 303, ()),
    "or_kimi-k2_usage.json": ("length", "Nebius", K2, 10, None, 29, ()),
    "or_models_listing_2026-08.json": ("not_chat_completion", None, None, None, *NOTHING),
    "or_reasoning_tokens_gt_completion.sse": (
        *("length", "Chutes", "nousresearch/hermes-4-70b", 500),
        *((2582, "\n", "y"), 0, ()),
    ),
}


@pytest.fixture(scope="module")
def index(shared_dir: Path) -> dict[str, dict[str, Any]]:
    """The recorders' own account of each body, by file name."""
    lines = (shared_dir / "recorded" / "INDEX.jsonl").read_bytes().splitlines()
    return {row["file"]: row for row in map(json.loads, lines)}


def recorded(shared_dir: Path, index: dict[str, dict[str, Any]], name: str) -> Reply | Failure:
    return parse_reply((shared_dir / "recorded" / name).read_bytes(), status=index[name]["status"])


def text_of(result: Reply | Failure) -> Reply | None:
    return result.partial if isinstance(result, Failure) else result


def test_every_recorded_body_is_in_the_table(index: dict[str, dict[str, Any]]) -> None:
    assert set(index) == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_body(shared_dir: Path, index: dict[str, dict[str, Any]], name: str) -> None:
    result = recorded(shared_dir, index, name)
    outcome, provider, model, completion_tokens, reasoning, content, ids = RECORDED[name]
    assert outcome == (result.kind if isinstance(result, Failure) else result.finish_reason)
    assert (result.provider, result.model) == (provider, model)
    assert (result.usage.completion_tokens if result.usage else None) == completion_tokens
    assert result.transport == name.rpartition(".")[2]
    text = text_of(result)
    assert (text is None) == ((reasoning, content, ids) == NOTHING)
    if text:
        assert reasoning == (text.reasoning and (len(text.reasoning), text.reasoning[0], text.reasoning[-1]))
        assert content == (None if text.content is None else len(text.content))
        assert tuple(call.id for call in text.tool_calls) == ids


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_body_against_its_recorder(shared_dir: Path, index: dict[str, dict[str, Any]], name: str) -> None:
    result, row = recorded(shared_dir, index, name), index[name]
    text = text_of(result)
    assert len((text and text.reasoning) or "") == row["reasoning_chars"]
    assert len((text and text.content) or "") == row["content_chars"]
    assert [call.id for call in (text.tool_calls if text else ())] == row["tool_ids"]
    usage, counts = result.usage, row["usage"]
    if counts is None:
        assert usage is None
    else:
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (
            counts["prompt_tokens"],
            counts["completion_tokens"],
        )
        assert usage.reasoning_tokens == row["reasoning_tokens"]
    if isinstance(result, Reply):
        assert not row["error"]
        assert {result.finish_reason} == set(row["finish"])
        assert list(result.native_finish_reasons) == list(dict.fromkeys(row["native"]))


def test_recorded_details(shared_dir: Path, index: dict[str, dict[str, Any]]) -> None:
    together = recorded(shared_dir, index, "or_kimi-k2_object_streaming.sse")
    assert isinstance(together, Reply)
    assert together.native_finish_reasons == ("tool_calls", "stop")
    assert [call.arguments for call in together.tool_calls] == [
        '{"age":28,"name":"Alex Chen","occupation":"Software Engineer"}'
    ]
    assert together.usage is not None
    assert (together.usage.cost, together.usage.cached_tokens) == (0.000274, 0)
    avian = recorded(shared_dir, index, "avian_kimi-k2.5_tool_streaming_0.sse")
    assert isinstance(avian, Reply)
    assert avian.reasoning_field == "reasoning_content"
    assert avian.content == "  "
    assert avian.tool_calls == (ToolCall("functions.weather:0", "weather", '{"location": "Florence,Italy"}'),)
    assert avian.generation_id == "gen-1773932879-9itFTxmMNzDrUKQO1wmR"
    novita = recorded(shared_dir, index, "or_kimi-k2_streaming.sse")
    assert isinstance(novita, Reply)
    assert len(novita.chunk_texts) == 9
    assert novita.chunk_texts[:3] == ("Hello", " from", " the")


def test_a_body_found_without_its_status_is_an_error_body(shared_dir: Path) -> None:
    body = (shared_dir / "recorded" / "or_err_401.json").read_bytes()
    found = failure(body, None)
    assert (found.kind, found.code, found.status) == (FailureKind.ERROR_BODY, 401, None)


def test_results_cannot_be_changed() -> None:
    reply = parse_reply(completion({"content": "a"}))
    with pytest.raises(dataclasses.FrozenInstanceError):
        reply.model = "other"  # type: ignore[misc]
