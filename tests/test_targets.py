"""Where requests go, against a listing on this machine and by hand."""

import asyncio
from typing import Any

import pytest

from kimi_helpers.openrouter import OpenRouterError, open_client
from kimi_helpers.targets import UNPINNED, Target, find_targets
from tests.loopback import listed, serve
from tests.test_generation import greet

MODEL = "moonshotai/kimi-k2.5"
LISTED = [listed("a/int4", provider_name="A"), listed("b", provider_name="B", quantization=None)]


def found(providers: list[str], path: str = "/api/v1", **options: Any) -> list[Target]:
    async def main(base_url: str) -> list[Target]:
        async with open_client(base_url.replace("/api/v1", path)) as client:
            return (await find_targets(client, MODEL, providers, **options))[0]

    with serve(greet, LISTED) as (base_url, _):
        return asyncio.run(main(base_url))


def test_a_slug_finds_its_endpoint_once() -> None:
    targets = found(["a", "b", "a/int4"])
    assert [(each.slug, each.label, each.provider_name) for each in targets] == [
        ("a/int4", "a/int4", "A"),
        ("b", "b", "B"),
    ]
    assert [each.quantization for each in targets] == ["int4", "unknown"]
    assert [each.offers("seed") for each in targets] == [True, True]
    assert not targets[0].offers("logprobs")
    # a dollar a million prompt tokens, ten a million of the reply: `listed`
    assert targets[0].dollars(2_000_000, 1_000_000) == pytest.approx(12)


def test_an_engine_is_one_provider_without_prices() -> None:
    (named,) = found(["mine"], "/v1")
    (unnamed,) = found([], "/v1")
    assert (named.slug, named.label, unnamed.label) == (None, "mine", "127.0.0.1")
    assert (named.provider_name, named.dollars(1, 1), named.offers("anything")) == (None, None, True)


def test_an_unpinned_run_has_one_target_of_no_name() -> None:
    assert found([], unpinned=True) == [Target(None, UNPINNED)]


@pytest.mark.parametrize(
    ("providers", "path", "options", "told"),
    [
        ([], "/api/v1", {}, "No provider is named"),
        (["a"], "/api/v1", {"unpinned": True}, "An unpinned run names no providers"),
        (["a", "b"], "/v1", {}, "is one provider"),
        (["a"], "/v1", {"unpinned": True}, "is one provider"),
        (["absent"], "/api/v1", {}, "absent"),
    ],
)
def test_what_cannot_be_pinned_is_refused(providers: list[str], path: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(OpenRouterError, match=told):
        found(providers, path, **options)
