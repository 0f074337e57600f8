"""The routes over real sockets."""

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.listings import MODELS
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary, special_tables
from tests.simulator_api import WEATHER, body, post, truth

SLUGS = [host.slug for host in HOSTS]


def spelled(message: dict[str, Any], opening: str = "") -> str:
    """A faithful message written out with its special tokens."""
    reasoning = message.get("reasoning")
    calls = "".join(
        f"<|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>{call['function']['arguments']}<|tool_call_end|>"
        for call in message.get("tool_calls", ())
    )
    section = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>" if calls else ""
    thought = "" if reasoning is None else f"{opening}{reasoning}</think>"
    return f"{thought}{message['content'] or ''}{section}<|im_end|>"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.format.name)
def test_the_true_ids_of_every_model_decode_to_the_faithful_text(model: Any, api: httpx.Client) -> None:
    vocabulary = load_vocabulary(format=model.format.name)
    opening = "<think>" if model.format.name == "kimi-k2-thinking" else ""
    for number in range(10):
        asked = {"said": f"q {number}", "model": model.slug, "tools": [WEATHER] if number % 2 else None}
        told = post(api, **asked)
        found = truth(api, told["id"])
        message = told["choices"][0]["message"]
        assert told["model"] == model.canonical_slug
        assert (message["reasoning"] is None) == (model.format.name == "kimi-k2")
        text = vocabulary.decode(found["token_ids"])
        assert text in (spelled(message, opening), spelled(message, opening).replace("</think><|tool", "<|tool"))
        usage = told["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (
            len(found["prompt_ids"]),
            len(found["token_ids"]),
        )
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_the_prompt_is_the_rendered_conversation(api: httpx.Client, kimi: Vocabulary) -> None:
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "reasoning": " Look.", "content": None, "tool_calls": [
            {"id": "functions.weather:0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "functions.weather:0", "content": "22"},
    ]  # fmt: skip
    found = truth(api, post(api, messages=messages)["id"])
    assert kimi.decode(found["prompt_ids"]) == (
        "<|im_user|>user<|im_middle|>Weather?<|im_end|><|im_assistant|>assistant<|im_middle|><think> Look.</think>"
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|><|im_end|><|im_system|>tool<|im_middle|>"
        "## Return of functions.weather:0\n22<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    )


def test_hosts_give_one_completion_their_own_text(api: httpx.Client) -> None:
    told = {host: post(api, said="q 3", host=host) for host in SLUGS}
    assert len({tuple(truth(api, reply["id"])["token_ids"]) for reply in told.values()}) == 1
    messages = {host: reply["choices"][0]["message"] for host, reply in told.items()}
    assert "\n" in messages["faithful"]["content"]
    reasoning, content = messages["faithful"]["reasoning"], messages["faithful"]["content"]
    assert (messages["blanks"]["reasoning"], messages["blanks"]["content"]) == (f"{reasoning} ", f" {content}")
    assert "reasoning" not in messages["reasoning-content"]
    assert "reasoning_details" not in messages["reasoning-content"]
    assert messages["reasoning-content"]["reasoning_content"] == reasoning
    assert messages["think-in-content"]["reasoning"] is None
    assert messages["think-in-content"]["content"] == f"{reasoning}</think>{content}"
    assert messages["end-not-counted"] == messages["faithful"]
    assert (messages["stripped"]["reasoning"], messages["stripped"]["content"]) == (
        reasoning.strip(),
        content.strip(),
    )
    counts = {host: reply["usage"]["completion_tokens"] for host, reply in told.items()}
    for host in ("end-not-counted", "hex-ids", "avian-like"):
        assert counts.pop(host) + 1 == counts["faithful"]
    assert len(set(counts.values())) == 1
    prompts = {host: reply["usage"]["prompt_tokens"] for host, reply in told.items()}
    assert [prompts.pop(host) - prompts["faithful"] for host in ("call-ids", "hex-ids")] == [9, 18]
    assert len(set(prompts.values())) == 1


@pytest.mark.parametrize("off", [{"reasoning": {"enabled": False}}, {"reasoning": {"effort": "none"}}])
def test_with_thinking_off_neither_prompt_nor_reply_thinks(
    off: dict[str, Any], api: httpx.Client, kimi: Vocabulary
) -> None:
    told = post(api, **off)
    found = truth(api, told["id"])
    assert told["choices"][0]["message"]["reasoning"] is None
    assert found["kind"] == "canonical"
    assert kimi.decode(found["prompt_ids"]).endswith("<|im_middle|><think></think>")
    assert kimi.decode(found["token_ids"]) == told["choices"][0]["message"]["content"] + "<|im_end|>"


def test_a_reply_may_be_cut_anywhere(api: httpx.Client, kimi: Vocabulary) -> None:
    """A reply with characters of several tokens: U+FFFD stands where one was cut, and nothing else breaks."""
    said = next(
        f"q {n}" for n in range(100) if "🐔" in (post(api, said=f"q {n}")["choices"][0]["message"]["content"] or "")
    )
    ids = truth(api, post(api, said=said)["id"])["token_ids"]
    cut_characters = 0
    for limit in range(1, len(ids) + 1):
        told = post(api, said=said, max_tokens=limit)
        choice = told["choices"][0]
        whole = limit == len(ids)
        assert told["usage"]["completion_tokens"] == limit
        assert choice["finish_reason"] == choice["native_finish_reason"] == ("stop" if whole else "length")
        assert truth(api, told["id"])["token_ids"] == ids[:limit]
        message = choice["message"]
        text = message["reasoning"] + ("</think>" if 163607 in ids[:limit] else "") + (message["content"] or "")
        assert text + "<|im_end|>" * whole == kimi.decode(ids[:limit])
        cut_characters += "\ufffd" in text
    assert cut_characters > 0


def test_an_unpinned_request_goes_to_each_host_in_turn(api: httpx.Client) -> None:
    served = [post(api, host=None)["provider"] for _ in range(2 * len(HOSTS))]
    assert set(served) == {host.name for host in HOSTS}
    assert all(first != second for first, second in pairwise(served))


def test_a_base_slug_or_the_first_of_several_pins_a_host(api: httpx.Client) -> None:
    assert post(api, host="stripped")["provider"] == "Loopback Stripped"
    several = {"only": ["blanks/int4", "faithful"]}
    assert post(api, provider=several)["provider"] == "Loopback Blanks"


def test_the_usage_is_billed_at_the_listed_prices(api: httpx.Client) -> None:
    listed = api.get("/models/moonshotai/kimi-k2.5/endpoints").json()["data"]["endpoints"]
    assert [endpoint["tag"] for endpoint in listed if "logprobs" in endpoint["supported_parameters"]] == [
        "returns-bytes/int4", "returns-content-bytes/int4",
    ]  # fmt: skip
    assert [endpoint["tag"] for endpoint in listed] == [f"{slug}/int4" for slug in SLUGS]
    assert [endpoint["provider_name"] for endpoint in listed] == [host.name for host in HOSTS]
    for endpoint in listed:
        usage = post(api, host=endpoint["tag"])["usage"]
        prompt = float(endpoint["pricing"]["prompt"]) * usage["prompt_tokens"]
        completion = float(endpoint["pricing"]["completion"]) * usage["completion_tokens"]
        assert usage["cost"] == pytest.approx(prompt + completion, rel=1e-12)


def test_the_models_listing_names_the_four_models(api: httpx.Client) -> None:
    listed = api.get("/models").json()["data"]
    assert [model["id"] for model in listed] == [
        "moonshotai/kimi-k2", "moonshotai/kimi-k2-thinking", "moonshotai/kimi-k2.5", "moonshotai/kimi-k2.6",
    ]  # fmt: skip
    for model in listed:
        assert api.get(model["links"]["details"].removeprefix("/api/v1")).json()["data"]["id"] == model["id"]


def test_a_generation_is_not_there_the_first_time(api: httpx.Client) -> None:
    told = post(api)
    first, second = (api.get("/generation", params={"id": told["id"]}) for _ in range(2))
    assert (first.status_code, first.json()["error"]["code"]) == (404, 404)
    data = second.json()["data"]
    assert data["native_tokens_completion"] == told["usage"]["completion_tokens"]
    assert (data["provider_name"], data["model"]) == (told["provider"], told["model"])
    assert data["total_cost"] == told["usage"]["cost"]
    unknown = [api.get("/generation", params={"id": "gen-none"}).status_code for _ in range(2)]
    assert unknown == [404, 404]


def test_the_key_and_the_generation_header(api: httpx.Client) -> None:
    assert api.get("/key", headers={"Authorization": "Bearer anything"}).json()["data"]["limit"] is None
    answer = api.post("/chat/completions", json=body(), headers={"Authorization": "Bearer anything"})
    assert answer.headers["x-generation-id"] == answer.json()["id"]
    assert answer.json()["id"].startswith("gen-")
    assert "anything" not in answer.text
    assert answer.text.startswith("\n         \n")


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"{", 400, "JSON"),
        (json.dumps({"model": "moonshotai/kimi-k2.5"}).encode(), 400, "messages"),
        (json.dumps(body(model="nobody/nothing")).encode(), 400, "nobody/nothing is not a valid model ID"),
        (json.dumps(body(host="\udc00")).encode(), 404, "No endpoints found"),
        (json.dumps(body(host="nowhere")).encode(), 404, "No endpoints found"),
        (json.dumps(body(host="faithful/fp8", stream=True)).encode(), 404, "No endpoints found"),
        (json.dumps(body(messages=[{"content": "no role"}])).encode(), 400, "messages.0.role"),
    ],
)
def test_errors_have_the_documented_shape(content: bytes, status: int, told: str, api: httpx.Client) -> None:
    answer = api.post("/chat/completions", content=content)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["code"] == status
    assert told in error["message"]


def test_a_message_the_template_cannot_render_is_told(api: httpx.Client) -> None:
    audio = [{"role": "user", "content": [{"type": "input_audio"}]}]
    answer = api.post("/chat/completions", json=body(messages=audio))
    assert answer.status_code == 400
    assert "'input_audio' cannot be rendered" in answer.json()["error"]["message"]


def test_a_lone_surrogate_in_a_message_is_no_error(api: httpx.Client, kimi: Vocabulary) -> None:
    answer = api.post("/chat/completions", content=json.dumps(body("\ud800")))
    assert answer.status_code == 200
    assert "\ufffd" in kimi.decode(truth(api, answer.json()["id"])["prompt_ids"])


@pytest.mark.parametrize("path", ["/models/nobody/nothing/endpoints", "/nothing"])
def test_unknown_paths_are_told_in_the_same_shape(path: str, api: httpx.Client) -> None:
    answer = api.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, 404)


def test_every_kimi_format_has_a_model() -> None:
    assert [model.format.name for model in MODELS] == list(special_tables())
