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


def test_a_model_may_split_otherwise_than_the_tokenizer() -> None:
    told: dict[float, list[dict[str, Any]]] = {}
    for rate in (0.0, 1.0):
        with running(noncanonical_rate=rate) as url, httpx.Client(base_url=url) as client:
            asked = [HELLO | {"seed": seed, "provider": {"only": ["faithful"]}} for seed in range(60)]
            replies = [client.post("/chat/completions", json=body).json() for body in asked]
            truths = [client.get(url.replace("/api/v1", f"/truth/{reply['id']}")).json() for reply in replies]
        told[rate] = [reply | found for reply, found in zip(replies, truths, strict=True)]
    assert {reply["kind"] for reply in told[0.0]} == {"canonical"}
    assert {reply["kind"] for reply in told[1.0]} == {"longer", "same_length"}
    for plain, split in zip(told[0.0], told[1.0], strict=True):
        assert plain["choices"][0]["message"] == split["choices"][0]["message"]
        assert split["usage"]["completion_tokens"] == len(split["token_ids"])
        assert (len(split["token_ids"]) > len(plain["token_ids"])) == (split["kind"] == "longer")


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
