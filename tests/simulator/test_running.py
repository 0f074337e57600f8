"""The server as a whole: where it listens, that it starts beside a running loop, and that it stops."""

import asyncio
import subprocess
import sys
from typing import Any

import httpx
import pytest

from kimi_helpers.simulator.server import running, serve
from kimi_helpers.vocabulary import Vocabulary

HELLO = {"model": "moonshotai/kimi-k2.5", "messages": [{"role": "user", "content": "hello"}]}


def test_50_requests_at_once_inside_a_running_loop() -> None:
    async def ask() -> list[dict[str, Any]]:
        with running() as url:
            async with httpx.AsyncClient(base_url=url, timeout=60) as client:
                asked = [client.post("/chat/completions", json=HELLO | {"seed": number}) for number in range(50)]
                return [answer.json() for answer in await asyncio.gather(*asked)]

    told = asyncio.run(ask())
    assert len({reply["id"] for reply in told}) == 50
    assert len({reply["choices"][0]["message"]["content"] for reply in told}) > 30


def test_a_vocabulary_of_another_layout_serves_too(tiny: Vocabulary) -> None:
    with running(lambda _format: tiny) as url:
        id = httpx.post(f"{url}/chat/completions", json=HELLO).json()["id"]
        ids = httpx.get(url.replace("/api/v1", f"/truth/{id}")).json()["token_ids"]
    assert tiny.decode(ids).endswith("<|im_end|>")
    assert max(ids) < tiny.size


def test_it_stops_on_leaving() -> None:
    with running() as url:
        assert httpx.get(f"{url}/models").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_only_loopback_addresses_are_bound(host: str) -> None:
    with pytest.raises(ValueError, match="is not a loopback address"):
        serve(0, host)


def test_a_taken_port_is_told() -> None:
    with running() as url, pytest.raises(OSError, match=r"port \d+ is taken; choose another"):
        serve(int(url.split(":")[2].partition("/")[0]))


def test_serve_prints_where_it_listens() -> None:
    script = "from kimi_helpers.simulator.server import serve; serve(0)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().split()[-1]
            assert httpx.get(f"{url}/key").json()["data"]["label"] == "loopback"
        finally:
            process.terminate()
