"""Tests of the HTTP client, against a server on this machine."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.responses import Response, StreamingResponse

from kimi_helpers.apis import ENGINE, MOONSHOT, OPENROUTER, Api, api_of, read_key
from kimi_helpers.openrouter import (
    BASE_URL,
    OpenRouterError,
    Transfer,
    encode_body,
    is_loopback,
    open_client,
    request_body,
    send,
)
from kimi_helpers.prompts import Prompt
from tests.loopback import Answer, events, free_port, serve, stream

SECRET = "sk-or-v1-0123456789abcdef"
MESSAGE = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def body_of(
    model: str,
    *,
    thinking: bool = True,
    tools: Any = None,
    seed: int | None = 7,
    provider: str | None = "chutes/int4",
    **options: Any,
) -> dict[str, Any]:
    prompt = Prompt("a", (MESSAGE,), tools, thinking)
    sampling: dict[str, Any] = {"max_tokens": 100, "temperature": 0.6, "top_p": 0.95}
    return request_body(prompt, model, provider, seed=seed, stream=True, **sampling, **options)


def post(base_url: str, request: bytes = b'{"messages":[{"content":"Hi"}]}', **options: Any) -> Transfer:
    async def main() -> Transfer:
        async with open_client(base_url) as client:
            return await send(client, request, **options)

    return asyncio.run(main())


def always(response: Response) -> Answer:
    async def answer(_: dict[str, Any], __: int) -> Response:
        return response

    return answer


def test_a_request_is_pinned_and_leaves_nothing_to_defaults() -> None:
    assert body_of("moonshotai/kimi-k2.5", tools=(TOOL,), quantization="int4") == {
        "model": "moonshotai/kimi-k2.5",
        "messages": [{"role": "system", "content": "You are Kimi, an AI assistant created by Moonshot AI."}, MESSAGE],
        "tools": [TOOL],
        "max_tokens": 100,
        "temperature": 0.6,
        "top_p": 0.95,
        "seed": 7,
        "stream": True,
        "reasoning": {"enabled": True},
        "provider": {
            "only": ["chutes/int4"],
            "allow_fallbacks": False,
            "require_parameters": True,
            "quantizations": ["int4"],
        },
        "plugins": [{"id": "context-compression", "enabled": False}],
    }


def test_a_system_message_of_the_prompt_s_own_stays_alone() -> None:
    own = ({"role": "system", "content": ""}, MESSAGE)
    sampling: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "seed": None, "stream": True}
    assert request_body(Prompt("a", own, None, True), "m", "p", **sampling)["messages"] == list(own)
    bare = request_body(Prompt("a", (MESSAGE,), None, True), "m", "p", system="", **sampling)
    assert bare["messages"] == [MESSAGE]
    assert bare["max_tokens"] == 16_384


def test_an_unpinned_request_names_no_provider() -> None:
    assert body_of("moonshotai/kimi-k2.5", provider=None)["provider"] == {"require_parameters": True}


@pytest.mark.parametrize(
    ("url", "api", "thinking"),
    [
        ("https://openrouter.ai/api/v1", OPENROUTER, {"reasoning": {"enabled": False}}),
        ("http://127.0.0.1:8899/api/v1", OPENROUTER, {"reasoning": {"enabled": False}}),
        ("https://api.moonshot.ai/v1", MOONSHOT, {"thinking": {"type": "disabled"}}),
        ("https://api.moonshot.cn/v1", MOONSHOT, {"thinking": {"type": "disabled"}}),
        ("http://127.0.0.1:8000/v1", ENGINE, {"chat_template_kwargs": {"thinking": False}}),
        ("https://engine.example.org/v1", ENGINE, {"chat_template_kwargs": {"thinking": False}}),
    ],
)
def test_each_api_gets_requests_of_its_own(url: str, api: Api, thinking: dict[str, Any]) -> None:
    assert api_of(httpx.URL(url)) is api
    body = body_of("moonshotai/kimi-k2.5", thinking=False, api=api, return_token_ids=True)
    assert body.items() >= thinking.items()
    assert body["return_token_ids"] is True
    assert ("provider" in body, "plugins" in body) == (api.routes, api.routes)
    assert body.get("stream_options") == (None if api.routes else {"include_usage": True})


def test_reasoning_is_stated_for_models_that_think() -> None:
    assert body_of("moonshotai/kimi-k2.6", thinking=False)["reasoning"] == {"enabled": False}
    assert body_of("moonshotai/kimi-k2-thinking")["reasoning"] == {"enabled": True}
    assert "reasoning" not in body_of("moonshotai/kimi-k2-0905")
    assert "reasoning" not in body_of("someone/unknown")


def test_fields_that_were_not_asked_for_are_left_out() -> None:
    assert body_of("moonshotai/kimi-k2.5", seed=None).keys().isdisjoint({"seed", "tools"})


def test_a_body_is_sent_as_utf8_with_its_keys_in_order() -> None:
    assert encode_body({"b": "挑\u2028", "a": [1, None]}) == '{"b":"挑\u2028","a":[1,null]}'.encode()


def test_the_key_is_read_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", f" {SECRET}\n")
    key = read_key("OPENROUTER_API_KEY")
    assert key.get_secret_value() == SECRET
    assert SECRET not in f"{key} {key!r}"


@pytest.mark.parametrize("value", ["", "  ", f"{SECRET} {SECRET}", f"{SECRET}\nx", f"{SECRET}…", "\x7f"])
def test_a_key_that_no_header_takes_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", value)
    with pytest.raises(OpenRouterError, match="OPENROUTER_API_KEY") as caught:
        read_key("OPENROUTER_API_KEY")
    assert SECRET not in str(caught.value)


def test_a_missing_key_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(OpenRouterError, match="is not set"):
        open_client()


@pytest.mark.parametrize("base_url", [BASE_URL, "https://eu.openrouter.ai/api/v1"])
def test_openrouter_gets_the_key(monkeypatch: pytest.MonkeyPatch, base_url: str) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    client = open_client(base_url)
    assert client.headers["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in repr(client.headers)
    assert str(client.build_request("POST", "chat/completions").url) == f"{base_url}/chat/completions"


@pytest.mark.parametrize(
    ("base_url", "told"),
    [
        ("http://openrouter.ai/api/v1", "would travel unencrypted"),
        ("http://api.moonshot.ai/v1", "would travel unencrypted"),
        ("http://10.0.0.1/v1", "would travel unencrypted"),
        ("http://user:pass@127.0.0.1", "is no address"),
        ("openrouter.ai/api/v1", "is no address"),
        ("file:///etc/passwd", "is no address"),
    ],
)
def test_addresses_that_would_give_a_key_away_are_refused(
    monkeypatch: pytest.MonkeyPatch, base_url: str, told: str
) -> None:
    for name in ("OPENROUTER_API_KEY", "MOONSHOT_API_KEY", "ENGINE_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    with pytest.raises(OpenRouterError, match=told) as caught:
        open_client(base_url)
    assert "user:pass" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "variable"),
    [
        ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("https://eu.openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
        ("https://openrouter.ai.example.org/api/v1", "ENGINE_API_KEY"),
        ("https://notopenrouter.ai/api/v1", "ENGINE_API_KEY"),
        ("https://127.0.0.1.example.org", "ENGINE_API_KEY"),
        ("http://localhost:8000/v1", "ENGINE_API_KEY"),
        ("http://127.0.0.1:8899/api/v1", None),
    ],
)
def test_each_host_gets_the_key_of_its_own_variable(
    monkeypatch: pytest.MonkeyPatch, base_url: str, variable: str | None
) -> None:
    for name in ("OPENROUTER_API_KEY", "MOONSHOT_API_KEY", "ENGINE_API_KEY"):
        monkeypatch.setenv(name, f"{name}-{SECRET}")
    sent = open_client(base_url).headers.get("Authorization")
    assert sent == (f"Bearer {variable}-{SECRET}" if variable else None)


def test_an_engine_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINE_API_KEY", raising=False)
    assert "Authorization" not in open_client("http://10.0.0.1:8000/v1").headers
    monkeypatch.delenv("MOONSHOT_API_KEY", raising=False)
    with pytest.raises(OpenRouterError, match="MOONSHOT_API_KEY is not set"):
        open_client("https://api.moonshot.ai/v1")


def test_which_addresses_are_of_this_machine() -> None:
    local = ["http://localhost:1/", "http://127.0.0.1:1/", "http://127.9.9.9/", "http://[::1]:1/"]
    remote = ["http://localhost.example.org/", "http://128.0.0.1/", "http://[::2]/"]
    assert [is_loopback(httpx.URL(url)) for url in local + remote] == [True] * 4 + [False] * 3


def test_a_server_of_this_machine_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serve(always(stream(events("Hello")))) as (base_url, seen):
        transfer = post(base_url)
    assert transfer.status == 200
    assert "authorization" not in seen.headers[0]
    assert seen.headers[0]["accept-encoding"] == "identity"


def test_bytes_are_kept_as_they_came() -> None:
    pieces = [b" \n\n", "data: 挑".encode()[:7], "data: 挑".encode()[7:] + b"\xff\r\n", "\u2028\n\n".encode(), b""]
    request = '{"messages":[{"content":"é\u2028"}]}'.encode()

    async def answer(_: dict[str, Any], __: int) -> Response:
        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece
                await asyncio.sleep(0.02)

        return StreamingResponse(body(), headers={"X-Generation-Id": "gen-1", "Set-Cookie": "a=b"})

    with serve(answer) as (base_url, seen):
        transfer = post(base_url, request)
    assert seen.bodies == [request] == [transfer.request]
    assert hashlib.sha256(transfer.body).digest() == hashlib.sha256(b"".join(pieces)).digest()
    assert [end for end, _ in transfer.chunks] == [3, 10, 15, 20]
    times = [microseconds for _, microseconds in transfer.chunks]
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] <= transfer.seconds * 1e6
    assert transfer.headers["x-generation-id"] == "gen-1"
    assert "set-cookie" not in transfer.headers
    assert transfer.transport_error is None


def test_a_cut_connection_keeps_what_came() -> None:
    pieces = events("Hello")[:2]
    with serve(always(stream(pieces, breaks=True))) as (base_url, _):
        transfer = post(base_url)
    assert transfer.status == 200
    assert transfer.body == b"".join(pieces)
    assert transfer.transport_error
    assert transfer.transport_error.startswith("RemoteProtocolError: ")


def test_an_absent_server_is_told() -> None:
    transfer = post(f"http://127.0.0.1:{free_port()}")
    assert (transfer.status, transfer.body, transfer.chunks) == (None, b"", ())
    assert transfer.transport_error
    assert transfer.transport_error.startswith("ConnectError")


def test_keep_alives_do_not_hold_an_exchange_for_ever() -> None:
    async def answer(_: dict[str, Any], __: int) -> Response:
        async def body() -> AsyncIterator[bytes]:
            while True:
                yield b": OPENROUTER PROCESSING\n\n"
                await asyncio.sleep(0.02)

        return StreamingResponse(body(), media_type="text/event-stream")

    with serve(answer) as (base_url, _):
        transfer = post(base_url, longest=0.3)
    assert transfer.transport_error == "the reply did not end within 0.3 seconds"
    assert transfer.body.startswith(b": OPENROUTER PROCESSING\n\n")


def test_a_key_that_a_host_echoes_is_overwritten() -> None:
    async def answer(request: dict[str, Any], _: int) -> Response:
        authorization = request["headers"]["authorization"]
        return Response(f"[{authorization}]", 401, headers={"X-Echo": authorization})

    async def main(base_url: str) -> Transfer:
        async with httpx.AsyncClient(base_url=base_url, headers={"Authorization": f"Bearer {SECRET}"}) as client:
            return await send(client, b'{"messages":[{"content":"Hi"}]}')

    with serve(answer) as (base_url, _):
        transfer = asyncio.run(main(base_url))
    assert transfer.body == b"[Bearer " + b"*" * len(SECRET) + b"]"
    assert SECRET not in repr(transfer)
