"""Bodies as hosts write them: streams and whole replies, evidence of tokens, and the shapes of recorded ones."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kimi_helpers.replies import Failure, Reply, parse_reply
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.vocabulary import Vocabulary
from tests.simulator_api import WEATHER, body, flat, joined, post, stream, truth

SLUGS = [host.slug for host in HOSTS]


@pytest.mark.parametrize("host", [slug for slug in SLUGS if slug != "sglang-old"])
def test_stream_and_json_say_the_same(host: str, api: httpx.Client) -> None:
    for number in range(12):
        asked = {"said": f"q {number}", "host": host, "tools": [WEATHER] if number % 2 else None}
        told = post(api, **asked)
        raw, chunks = stream(api, **asked)
        assert raw.startswith(b": OPENROUTER PROCESSING\n\n")
        assert joined(chunks) == flat(told["choices"][0]["message"])
        assert chunks[-1]["usage"] == told["usage"]
        finish = told["choices"][0]["finish_reason"]
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-3:]] == [None, finish, finish]
        assert all(chunk["choices"][0]["delta"]["role"] == "assistant" for chunk in chunks)
        assert {chunk["provider"] for chunk in chunks} == {told["provider"]}


def test_old_sglang_strips_a_stream_and_a_whole_reply_differently(api: httpx.Client) -> None:
    differing = 0
    for number in range(20):
        plain = post(api, said=f"q {number}")["choices"][0]["message"]
        whole = post(api, said=f"q {number}", host="sglang-old")["choices"][0]["message"]
        _, chunks = stream(api, said=f"q {number}", host="sglang-old")
        streamed = joined(chunks)
        content = plain["content"].replace("<think>", "").strip()
        assert (whole["reasoning"], whole["content"]) == (plain["reasoning"].lstrip(), content)
        assert (streamed["reasoning"], streamed["content"]) == (plain["reasoning"].rstrip(), plain["content"])
        differing += whole["reasoning"] != streamed["reasoning"]
    assert differing > 10


@pytest.mark.parametrize("limit", [None, 3, 30, 60])
@pytest.mark.parametrize("streamed", [False, True])
def test_ids_are_returned_where_they_are_asked_for(streamed: bool, limit: int | None, api: httpx.Client) -> None:
    for number in range(12):
        asked = body(f"q {number}", "returns-ids", tools=[WEATHER], stream=streamed, max_tokens=limit)
        answer = api.post("/chat/completions", json={**asked, "return_token_ids": True})
        told = parse_reply(answer.content)
        reply = told.partial if isinstance(told, Failure) else told
        assert reply is not None
        found = truth(api, answer.headers["x-generation-id"])
        assert reply.engine_token_ids == tuple(found["token_ids"])
        assert reply.engine_prompt_token_ids == tuple(found["prompt_ids"])


@pytest.mark.parametrize("streamed", [False, True])
def test_bytes_are_returned_where_they_are_asked_for(streamed: bool, api: httpx.Client, kimi: Vocabulary) -> None:
    for number in range(12):
        told = {}
        for host in ("returns-bytes", "returns-content-bytes"):
            asked = body(f"q {number}", host, tools=[WEATHER], stream=streamed, logprobs=True)
            answer = api.post("/chat/completions", json=asked)
            reply = parse_reply(answer.content)
            assert isinstance(reply, Reply)
            assert reply.logprobs is not None
            told[host] = (reply, [entry.data or b"" for entry in reply.logprobs])
        every = [kimi.token_bytes(id) for id in truth(api, answer.headers["x-generation-id"])["token_ids"]]
        assert told["returns-bytes"][1] == every
        reply, data = told["returns-content-bytes"]
        assert b"".join(data).decode() == (reply.content or "")


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("returns-ids", {}),
        ("returns-ids", {"logprobs": True}),
        ("returns-bytes", {"return_token_ids": True}),
        ("returns-content-bytes", {"logprobs": False}),
        ("faithful", {"logprobs": True, "return_token_ids": True}),
    ],
)
def test_no_host_tells_of_tokens_unasked(host: str, asked: dict[str, Any], api: httpx.Client) -> None:
    for streamed in (False, True):
        answer = api.post("/chat/completions", json=body(host=host, stream=streamed) | asked)
        reply = parse_reply(answer.content)
        assert isinstance(reply, Reply)
        assert (reply.logprobs, reply.engine_token_ids, reply.engine_prompt_token_ids) == (None, None, None)


def test_a_cut_stream_says_what_the_cut_body_says(api: httpx.Client) -> None:
    for limit in range(1, 200, 7):
        told = post(api, said="q 7", tools=[WEATHER], max_completion_tokens=limit)
        _, chunks = stream(api, said="q 7", tools=[WEATHER], max_completion_tokens=limit)
        assert joined(chunks) == flat(told["choices"][0]["message"])
        assert chunks[-1]["usage"] == told["usage"]


def shape(value: Any) -> Any:
    """The field names of a body in their order; a list counts as its first item."""
    if isinstance(value, dict):
        return [(name, shape(inner)) for name, inner in value.items()]
    return shape(value[0]) if isinstance(value, list) and value else None


def test_bodies_have_the_fields_of_recorded_ones_in_their_order(api: httpx.Client, shared_dir: Path) -> None:
    recorded = json.loads((shared_dir / "recorded" / "or_kimi-k2.5_tool_0.json").read_bytes())
    told = post(api, tools=[WEATHER], tool_choice="required")
    assert shape(told) == shape(recorded)


def test_chunks_have_the_fields_of_recorded_ones_in_their_order(api: httpx.Client, shared_dir: Path) -> None:
    raw = (shared_dir / "recorded" / "or_kimi-k2.5_simple_streaming_0.sse").read_bytes()
    events = [line.removeprefix(b"data: ") for line in raw.split(b"\n") if line.startswith(b"data: {")]
    recorded = [json.loads(event) for event in events]
    _, chunks = stream(api)
    has_content = [next(c for c in told if c["choices"][0]["delta"]["content"]) for told in (recorded, chunks)]
    assert shape(has_content[1]) == shape(has_content[0])
    for place in (0, -2, -1):
        assert shape(chunks[place]) == shape(recorded[place])
