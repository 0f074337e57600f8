"""Reading bytes as typed bodies."""

import pytest

from kimi_helpers.reply_bodies import StatedError, read_body
from tests.reply_samples import chunk, completion, json_body, stream

DEEP = 10_000
JSON = completion({"content": "x"})
STREAM = stream(chunk({"content": "x"}, "stop"))


@pytest.mark.parametrize(
    ("body", "transport"),
    [
        (JSON, "json"),
        (b"\n         \n\n" + JSON, "json"),
        (b"\xef\xbb\xbf" + JSON, "json"),
        (b": PROCESSING\n\n: PROCESSING\n\n" + JSON, "json"),
        (STREAM, "sse"),
        (b"\xef\xbb\xbf" + STREAM, "sse"),
        (STREAM.replace(b"\n", b"\r\n"), "sse"),
        (b"\r\n\r\ndata: [DONE]", "sse"),
        (b"event: message\n" + STREAM, "sse"),
        (b": PROCESSING\n\n: ", "sse"),
        (b"[]", "json"),
        (b"{", "json"),
        (b"<html>502</html>", None),
        (b"database error", None),
        (b" \n ", None),
        (b"", None),
    ],
)
def test_the_bytes_tell_the_transport(body: bytes, transport: str | None) -> None:
    assert read_body(body).transport == transport


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "it is empty"),
        (b"\n   \n", "it is empty"),
        (b"<html>bad gateway</html>", "it begins '<html>bad gateway</html>'"),
        (b'\n {"choices": [', "at character 15"),
        (b'{"choices": []} {}', "Extra data at character 16"),
        (b'\n{"choices": "\xff"}', "byte 14 is not UTF-8"),
        (b'{"choices": "\xed\xa0\x80"}', "byte 13 is not UTF-8"),
        (b'{"choices": [], "x": NaN}', "NaN is not JSON"),
        (b'{"choices": [], "x": -Infinity}', "-Infinity is not JSON"),
        (b'{"choices": [], "x": ' + b"9" * 5000 + b"}", "too many digits"),
        (b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nested too deeply"),
        (b'{"choices": [{"message": {"content": "a", "content": "b"}}]}', "the key 'content' stands twice"),
        (completion({"content": ["a"]}), "choices.0.message.content: Input should be a valid string"),
        (completion({"content": 5}), "choices.0.message.content"),
        (completion("text"), "choices.0.message"),
        (completion({"tool_calls": [{"id": 7}]}), "choices.0.message.tool_calls.0.id"),
        (
            completion({"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}),
            "choices.0.message.tool_calls.0.function.arguments",
        ),
        (completion({"content": "a"}, finish=1), "choices.0.finish_reason"),
        (completion({"content": "a"}, usage={"completion_tokens": "12"}), "usage.completion_tokens"),
        (completion({"content": "a"}, usage={"completion_tokens": True}), "usage.completion_tokens"),
        (completion({"content": "a"}, usage={"completion_tokens": 12.0}), "usage.completion_tokens"),
        (completion({"content": "a"}, usage={"completion_tokens": -1}), "usage.completion_tokens"),
        (completion({"content": "a"}, usage={"completion_tokens": 10**30}), "usage.completion_tokens"),
        (completion({"content": "a"}, usage={"cost": 10**400}), "usage.cost"),
        (completion({"content": "a"}).replace(b'"stop"', b'"stop", "usage": {"cost": 1e999}'), "usage.cost"),
        (completion({"content": "a"}, choice={"token_ids": [1, -1]}), "choices.0.token_ids.1"),
        (
            completion(
                {"content": "a"}, choice={"logprobs": {"content": [{"token": "a", "logprob": 0, "bytes": [256]}]}}
            ),
            "choices.0.logprobs.content.0.bytes.0",
        ),
        (json_body({"choices": {"message": {}}}), "choices: Input should be a valid list"),
        (stream(chunk({"content": "a"}), {"choices": [5]}), "event 2: choices.0"),
        (stream(chunk({"content": "a"}), 5), "event 2: the body"),
        (b"data: {]\n\ndata: [DONE]\n\n", "event 1: not JSON"),
        (b'data: {"choices": "\xe6\x8c"}\n\ndata: [DONE]\n\n', "event 1: byte 13 is not UTF-8"),
        (STREAM + STREAM, "event 3 comes after [DONE]"),
        (b"data: " + JSON + b"\n\ndata: [DONE]\n\n", "event 1: a whole message where a stream has deltas"),
    ],
)
def test_what_cannot_be_read_is_told(body: bytes, problem: str) -> None:
    found = read_body(body).problem
    assert found is not None
    assert problem in found


@pytest.mark.parametrize(
    "body",
    [
        JSON,
        STREAM,
        STREAM + b"data: [DONE]\n\n",  # some gateways say it twice
        b"data:\n\n" + STREAM,
        stream(chunk({"content": "a"}, "stop"), {"choices": None, "usage": {"completion_tokens": 1}}),
        stream(chunk({"content": "a"}, "stop"), {"usage": {"completion_tokens": 1}}),
        completion({"content": "a", "tool_calls": None}, created="later", system_fingerprint=[]),
    ],
)
def test_what_is_odd_but_clear_is_read(body: bytes) -> None:
    exchange = read_body(body)
    assert exchange.problem is None
    assert exchange.ended
    assert not exchange.foreign


@pytest.mark.parametrize(
    "tail", [b"", b"data: [DON", b'data: {"choices": [{"delta"', b"data: \xe6\x8c", b"da", b": note"]
)
def test_what_the_end_of_a_stream_cut_is_no_problem_but_no_end_either(tail: bytes) -> None:
    exchange = read_body(stream(chunk({"content": "a"}, "stop"), done=False) + tail)
    assert (exchange.problem, exchange.ended, len(exchange.bodies)) == (None, False, 1)


@pytest.mark.parametrize(
    "body",
    [
        json_body({"output": {"message": {"role": "assistant"}}, "stopReason": "tool_use"}),
        json_body({"data": [{"id": "m"}], "id": 5}),
        json_body([1]),
        b"null",
        json_body({"object": "text_completion", "choices": [{"text": "a", "finish_reason": "stop"}]}),
        completion(None),
        json_body(chunk({"content": "a"}, "stop")),
        stream({"type": "response.created"}, {"type": "response.output_text.delta", "delta": "a"}),
    ],
)
def test_json_of_another_api_is_foreign(body: bytes) -> None:
    assert read_body(body).foreign


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"error": {"code": 502, "message": "m"}}, StatedError(502, "m", None, in_choice=False)),
        ({"error": {"code": "x", "message": None}}, StatedError("x", "no message", None, in_choice=False)),
        ({"error": {"code": True}}, StatedError(None, "no message", None, in_choice=False)),
        ({"error": "overloaded"}, StatedError(None, "overloaded", None, in_choice=False)),
        ({"error": {}}, StatedError(None, "no message", None, in_choice=False)),
        (
            {"error": {"message": "m", "metadata": {"raw": "why", "provider_name": "P"}}, "choices": [5]},
            StatedError(None, "m: why", "P", in_choice=False),
        ),
        (
            {"error": {"message": "m", "metadata": {"raw": {}, "provider_name": None}}},
            StatedError(None, "m", None, in_choice=False),
        ),
        ({"object": "error", "message": "m", "code": 400}, StatedError(400, "m", None, in_choice=False)),
        ({"choices": [{"error": {"message": "m"}}], "id": 5}, StatedError(None, "m", None, in_choice=True)),
    ],
)
def test_a_stated_error_is_found_whatever_else_is_wrong(document: object, error: StatedError) -> None:
    assert read_body(json_body(document)).errors == (error,)
    assert read_body(stream(document, done=False)).errors == (error,)


def test_a_null_error_is_none() -> None:
    body = completion({"content": "a"}, choice={"error": None}, error=None)
    assert read_body(body).errors == ()
