"""Tests of the listings: a body written by hand, the recorded one, the loopback hosts', and what is no listing."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from kimi_helpers.listings import (
    Endpoint,
    Percentiles,
    PriceOverride,
    Pricing,
    fetch_generation,
    fetch_key,
    find_endpoint,
    list_endpoints,
    list_models,
    parse_endpoints,
)
from kimi_helpers.openrouter import OpenRouterError, call_plainly, encode_body, open_client, request_body, send
from kimi_helpers.prompts import Prompt
from kimi_helpers.replies import Reply, parse_reply
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.server import running
from tests.loopback import Answer, free_port, serve

Result = TypeVar("Result")

LISTED = {
    "name": "Chutes | moonshotai/kimi-k2.5-0127",
    "tag": "chutes/int4",
    "provider_name": "Chutes",
    "model_id": "moonshotai/kimi-k2.5",
    "context_length": 262144,
    "max_completion_tokens": 65536,
    "max_prompt_tokens": None,
    "quantization": "int4",
    "pricing": {
        "prompt": "0.00000044",
        "completion": "0.000002",
        "input_cache_read": "0.00000022",
        "discount": 0,
        "overrides": [{"min_prompt_tokens": 200000, "prompt": "0.00000088"}],
    },
    "supported_parameters": ["seed", "tools"],
    "status": 0,
    "uptime_last_5m": 100,
    "uptime_last_30m": 99.25,
    "uptime_last_1d": None,
    "latency_last_30m": {"p50": 850, "p75": 1200.5, "p90": 2000, "p99": 5000},
    "throughput_last_30m": None,
    "supports_implicit_caching": True,
}
READ = Endpoint(
    tag="chutes/int4",
    provider_name="Chutes",
    pricing=Pricing(
        prompt=Decimal("0.00000044"),
        completion=Decimal("0.000002"),
        input_cache_read=Decimal("0.00000022"),
        overrides=(PriceOverride(200000, Decimal("0.00000088")),),
    ),
    model_id="moonshotai/kimi-k2.5",
    quantization="int4",
    context_length=262144,
    max_completion_tokens=65536,
    supported_parameters=frozenset({"seed", "tools"}),
    status=0,
    uptime_last_5m=100,
    uptime_last_30m=99.25,
    latency_last_30m=Percentiles(850, 1200.5, 2000, 5000),
    supports_implicit_caching=True,
)


def always(response: Response) -> Answer:
    async def answer(_: dict[str, Any], __: int) -> Response:
        return response

    return answer


def asked(answer: Answer, call: Callable[[httpx.AsyncClient], Awaitable[Result]]) -> tuple[Result, int]:
    """What a call gives against a server of its own, and how many requests it took."""
    with serve(answer) as (base_url, seen):
        return call_plainly(call, base_url), len(seen.headers)


def test_an_endpoint_is_read_field_by_field() -> None:
    body = json.dumps({"data": {"id": "moonshotai/kimi-k2.5", "endpoints": [LISTED]}}).encode()
    assert parse_endpoints(body) == (READ,)


def test_a_listing_is_kept_as_it_came() -> None:
    body = json.dumps({"data": {"endpoints": [LISTED]}}, indent=1).encode()
    listing, _ = asked(always(Response(body)), lambda client: list_endpoints(client, "moonshotai/kimi-k2.5"))
    assert (listing.model, listing.endpoints, listing.body) == ("moonshotai/kimi-k2.5", (READ,), body)


def test_an_endpoint_that_says_little_is_read() -> None:
    body = json.dumps({"data": {"endpoints": [{"tag": "a", "provider_name": "A", "pricing": {}}]}}).encode()
    assert parse_endpoints(body) == (Endpoint("a", "A", Pricing()),)


def test_the_models_recorded_in_august(shared_dir: Path) -> None:
    body = (shared_dir / "recorded" / "or_models_listing_2026-08.json").read_bytes()
    models, _ = asked(always(Response(body)), list_models)
    rows = json.loads(body)["data"]
    assert [model.id for model in models] == [row["id"] for row in rows]
    by_id = {model.id: model for model in models}
    cheap = by_id["openai/gpt-5-nano"].pricing
    assert cheap
    assert (cheap.prompt, cheap.completion) == (Decimal("5e-8"), Decimal("4e-7"))
    long = by_id["anthropic/claude-sonnet-4"].pricing
    assert long
    assert long.overrides == (PriceOverride(200000, Decimal("6e-6"), Decimal("2.25e-5")),)


def test_a_price_that_depends_on_the_route_is_none() -> None:
    listed = {"id": "openrouter/auto", "pricing": {"prompt": "-1", "completion": "-1"}}
    models, _ = asked(always(JSONResponse({"data": [listed]})), list_models)
    assert models[0].pricing == Pricing()


def test_the_loopback_hosts_list_themselves() -> None:
    with running() as url:
        listing = call_plainly(list_endpoints, url, "moonshotai/kimi-k2.5")
        assert [each.tag for each in listing.endpoints] == [host.tag for host in HOSTS]
        first = listing.endpoints[0]
        assert (first.provider_name, first.quantization) == ("Loopback Faithful", "int4")
        assert first.pricing.completion == Decimal(HOSTS[0].completion_price)
        assert first.latency_last_30m
        assert first.latency_last_30m.p50 == 850
        assert "moonshotai/kimi-k2.5" in {model.id for model in call_plainly(list_models, url)}
        assert call_plainly(fetch_key, url).limit is None


def test_a_generation_of_a_loopback_host_is_not_there_at_first() -> None:
    prompt = Prompt("a", ({"role": "user", "content": "Hi"},), None, True)
    body = request_body(
        prompt, "moonshotai/kimi-k2.5", "faithful/int4", max_tokens=99, temperature=1, top_p=1, seed=1, stream=False
    )

    async def main(base_url: str) -> None:
        async with open_client(base_url) as client:
            reply = parse_reply((await send(client, encode_body(body))).body)
            assert isinstance(reply, Reply)
            assert reply.generation_id
            assert reply.usage
            found = await fetch_generation(client, reply.generation_id)
            assert found
            assert (found.id, found.provider_name) == (reply.generation_id, "Loopback Faithful")
            assert found.native_tokens_completion == reply.usage.completion_tokens

    with running() as url:
        asyncio.run(main(url))


def test_a_generation_that_never_appears_is_none() -> None:
    missing = JSONResponse({"error": {"code": 404, "message": "not found"}}, 404)
    found, requests = asked(always(missing), lambda client: fetch_generation(client, "gen-1", patience=0.6))
    assert found is None
    assert requests >= 2


def test_a_generation_that_cannot_be_told_is_an_error() -> None:
    with pytest.raises(OpenRouterError, match=r"GET generation\?id=gen-1%2F\.\.: .*status 401"):
        asked(always(JSONResponse({}, 401)), lambda client: fetch_generation(client, "gen-1/.."))


def test_a_slug_pins_one_endpoint_or_is_refused() -> None:
    tags = ("deepinfra/fp4", "deepinfra/turbo", "chutes/int4", "groq")
    endpoints = [replace(READ, tag=tag) for tag in tags]
    assert find_endpoint(endpoints, "chutes/int4").tag == "chutes/int4"
    assert find_endpoint(endpoints, "chutes").tag == "chutes/int4"
    assert find_endpoint(endpoints, "groq").tag == "groq"
    with pytest.raises(OpenRouterError, match="deepinfra names 2 endpoints: name one of deepinfra/fp4, deepinfra/tur"):
        find_endpoint(endpoints, "deepinfra")
    with pytest.raises(OpenRouterError, match="names no endpoint of this model: name one of chutes/int4, deepinfra"):
        find_endpoint(endpoints, "deep")
    with pytest.raises(OpenRouterError, match="names no endpoint of this model: name one of none"):
        find_endpoint([], "groq")


@pytest.mark.parametrize(
    "body", ["<html>", "[]", '{"data": {"endpoints": {}}}', '{"data": [1]}', "{}", '{"data": {"endpoints": [{}]}}']
)
def test_an_answer_that_is_no_listing_is_refused(body: str) -> None:
    calls: list[Callable[[httpx.AsyncClient], Awaitable[Any]]] = [list_models, lambda c: list_endpoints(c, "a/b")]
    for call in calls:
        with pytest.raises(OpenRouterError, match="no listing"):
            asked(always(Response(body)), call)


def test_an_unknown_model_and_an_absent_server_are_told() -> None:
    missing = JSONResponse({"error": {"code": 404, "message": "not found"}}, 404)
    with pytest.raises(OpenRouterError, match=r"GET models/moonshotai/kimi/endpoints: .*status 404"):
        asked(always(missing), lambda client: list_endpoints(client, "moonshotai/kimi"))
    with pytest.raises(OpenRouterError, match="cannot be reached"):
        call_plainly(list_models, f"http://127.0.0.1:{free_port()}")


def test_a_plain_call_works_inside_a_running_event_loop() -> None:
    async def cell(base_url: str) -> int:
        return len(call_plainly(list_models, base_url))

    with running() as url:
        assert asyncio.run(cell(url)) > 0
