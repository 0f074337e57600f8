"""Connections against a server on this machine: taken again, never shared, and made anew where they broke."""

import asyncio
from typing import Any
from urllib.request import getproxies

import httpx
import pytest
from starlette.responses import Response

from kimi_helpers.connections import StackedConnections, proxy_for
from kimi_helpers.openrouter import open_client, send
from tests.loopback import Answer, events, serve, stream

REQUEST = b'{"messages":[{"content":"a"}]}'


async def hello(_: dict[str, Any], __: int) -> Response:
    return stream(events("Hello"))


def sent(answer: Answer, *together: int) -> tuple[list[str | None], int]:
    """Rounds of so many requests together: how each ended, and how many connections there were at the end."""

    async def main(base_url: str) -> tuple[list[str | None], int]:
        connections = StackedConnections()
        errors: list[str | None] = []
        async with httpx.AsyncClient(base_url=base_url, transport=connections) as client:
            for count in together:
                done = await asyncio.gather(*(send(client, REQUEST) for _ in range(count)))
                errors += [each.transport_error for each in done]
            return errors, len(connections._made)

    with serve(answer) as (base_url, _):
        return asyncio.run(main(base_url))


def test_there_are_as_many_connections_as_requests_at_once() -> None:
    assert sent(hello, 3, 5, 1, 5) == ([None] * 14, 5)


def test_a_broken_connection_is_replaced() -> None:
    async def answer(_: dict[str, Any], before: int) -> Response:
        return stream(events("Hello")[:2], breaks=before == 0)

    errors, made = sent(answer, 1, 1, 1)
    assert [error is None for error in errors] == [False, True, True]
    assert made == 1


def test_a_cancelled_request_gives_its_connection_back() -> None:
    async def answer(_: dict[str, Any], before: int) -> Response:
        await asyncio.sleep(0 if before else 30)
        return stream(events("Hello"))

    async def main(base_url: str) -> int:
        connections = StackedConnections()
        async with httpx.AsyncClient(base_url=base_url, transport=connections) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send(client, REQUEST), 0.1)
            assert (await send(client, REQUEST)).transport_error is None
            return len(connections._made)

    with serve(answer) as (base_url, _):
        assert asyncio.run(main(base_url)) == 1


def test_a_client_closes_what_it_opened() -> None:
    async def main(base_url: str) -> None:
        client = open_client(base_url)
        async with client:
            await send(client, REQUEST)
        with pytest.raises(RuntimeError, match="closed"):
            await send(client, REQUEST)

    with serve(hello) as (base_url, _):
        asyncio.run(main(base_url))


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"ALL_PROXY": "p:2"}, "http://p:2"),
        ({"HTTPS_PROXY": "http://p:1", "ALL_PROXY": "http://p:2"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other.invalid,host.invalid"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other.invalid"}, "http://p:1"),
    ],
)
def test_proxies_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxy: str | None
) -> None:
    for scheme in (*getproxies(), "http", "https", "all", "no"):
        for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper()):
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(httpx.URL("https://host.invalid/api/v1")) == proxy
