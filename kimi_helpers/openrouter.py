"""The HTTP client of OpenRouter: pinned requests, replies kept byte for byte.

Source of the fields and their effects: OpenRouter's documentation (parameters, provider routing, message
transforms, errors). Nothing here reads a reply: see `replies`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx
from anyio.from_thread import start_blocking_portal

from kimi_helpers.apis import OPENROUTER, Api, OpenRouterError, api_of, is_loopback, key_for
from kimi_helpers.connections import StackedConnections, proxy_for
from kimi_helpers.formats import format_of_model
from kimi_helpers.prompts import Prompt

__all__ = [
    "OpenRouterError",
    "Transfer",
    "call_plainly",
    "encode_body",
    "is_loopback",
    "open_client",
    "request_body",
    "send",
]

BASE_URL = "https://openrouter.ai/api/v1"

# Room for the reasoning, which counts: Moonshot advises no less, and a smaller limit cuts many replies.
MAX_TOKENS = 16_384
# What K2's own template puts before a conversation that has none; stated, so that no host puts another one there.
SYSTEM_MESSAGE = "You are Kimi, an AI assistant created by Moonshot AI."

# Keep-alive comments reset the read timeout for ever, so the whole exchange has an end of its own.
LONGEST_EXCHANGE = 1800.0
TIMEOUTS = httpx.Timeout(connect=20, write=60, read=300, pool=None)

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie"})


@dataclass(frozen=True)
class Transfer:
    """One HTTP exchange as it happened.

    Attributes:
        request: the request's body, as sent.
        status: of HTTP; None where no response began.
        headers: of the response, names in lower case; cookies and credentials are left out.
        body: the response's body as received; shorter than the host's where `transport_error` says so.
        chunks: (end offset in `body`, microseconds since the request began) of each piece, as it arrived.
        started: UTC, ISO 8601.
        seconds: from the start of the request to the end of the response.
        transport_error: why the exchange broke off, or None.
    """

    request: bytes
    status: int | None
    headers: Mapping[str, str]
    body: bytes
    chunks: tuple[tuple[int, int], ...]
    started: str
    seconds: float
    transport_error: str | None


def open_client(base_url: str = BASE_URL) -> httpx.AsyncClient:
    """A client for `async with`: OpenRouter, a server on this machine, or any other that speaks as OpenAI's does.

    Each kind of API gets the key of its own variable (`apis`), and no other. For a loopback address no proxy of the
    environment is used.

    Raises:
        OpenRouterError: the address cannot be used, or there is no usable key.
    """
    url = httpx.URL(base_url)
    if url.userinfo or url.scheme not in ("http", "https") or not url.host:
        raise OpenRouterError(
            f"{url.scheme or 'no scheme'}://{url.host} is no address to use: give http(s)://HOST/PATH, such as "
            f"{BASE_URL}, and keep keys in the environment."
        )
    key = key_for(url)
    # Compression would hide which bytes came when.
    headers = {"Accept-Encoding": "identity", "Content-Type": "application/json", **api_of(url).headers}
    if key:
        headers["Authorization"] = f"Bearer {key.get_secret_value()}"
    connections = StackedConnections(None if is_loopback(url) else proxy_for(url))
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUTS, transport=connections)


def call_plainly(
    call: Callable[Concatenate[httpx.AsyncClient, _Given], Awaitable[_Result]],
    base_url: str,
    *given: _Given.args,
    **named: _Given.kwargs,
) -> _Result:
    """Await `call(client, ...)` from plain code, also where an event loop runs already, as in a notebook's cell.

    It runs in a thread with an event loop and a client of its own. An interrupt (Ctrl-C, or Jupyter's stop button)
    cancels the call there, waits until it has cleaned up, and is raised.

    Raises:
        OpenRouterError: of `open_client`, beside what the call raises.
    """

    async def main() -> _Result:
        async with open_client(base_url) as client:
            return await call(client, *given, **named)

    with start_blocking_portal() as portal:
        return portal.call(main)


def request_body(
    prompt: Prompt,
    model: str,
    provider: str | None,
    *,
    api: Api = OPENROUTER,
    quantization: str | None = None,
    max_tokens: int = MAX_TOKENS,
    temperature: float,
    top_p: float,
    seed: int | None,
    stream: bool,
    system: str = SYSTEM_MESSAGE,
    return_token_ids: bool = False,
    logprobs: bool = False,
) -> dict[str, Any]:
    """The body of `POST /chat/completions`, pinned to one provider, with nothing left to a host's default.

    Args:
        provider: a full slug of the endpoint listing (`tag`); one without a variant matches all of its variants. None
            leaves the choice to the gateway: then nobody knows what a reply went through before it came.
        quantization: of the pinned endpoint, as the listing names it.
        seed: None where the endpoint takes none: `require_parameters` would refuse it.
        system: put before a conversation without a system message; "" puts nothing there.
        return_token_ids: ask for the sampled ids (vLLM, SGLang); only for a server that can.
        logprobs: ask for the sampled tokens with their bytes; only for an endpoint that lists the parameter.
    """
    has_system = bool(prompt.messages) and prompt.messages[0].get("role") == "system"
    opening = [] if has_system or not system else [{"role": "system", "content": system}]
    body: dict[str, Any] = {
        "model": model,
        "messages": [*opening, *prompt.messages],
        # Not max_completion_tokens: few Kimi endpoints list it, and require_parameters excludes the others.
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "stream": stream,
    }
    if api.routes:
        body["provider"] = _routing(provider, quantization)
        # On by default where the context is short; it drops text from the middle of the prompt.
        body["plugins"] = [{"id": "context-compression", "enabled": False}]
    elif stream:
        body["stream_options"] = {"include_usage": True}
    if seed is not None:
        body["seed"] = seed
    if return_token_ids:
        body["return_token_ids"] = True
    if logprobs:
        body["logprobs"] = True
    if prompt.tools:
        body["tools"] = list(prompt.tools)
    format = format_of_model(model)
    if format and format.thinks:
        body |= api.thinking(prompt.thinking)
    return body


def _routing(provider: str | None, quantization: str | None) -> dict[str, Any]:
    pinned = {} if provider is None else {"only": [provider], "allow_fallbacks": False}
    quantizations = {} if quantization is None else {"quantizations": [quantization]}
    return {**pinned, "require_parameters": True, **quantizations}


def encode_body(body: Mapping[str, Any]) -> bytes:
    """A request's body as sent: compact UTF-8 JSON, keys in their order (a chat template may write tools as given)."""
    return json.dumps(body, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


async def send(client: httpx.AsyncClient, request: bytes, longest: float = LONGEST_EXCHANGE) -> Transfer:
    """Post a chat completion and keep what comes back, whatever it is. Only cancellation is raised.

    Args:
        request: of `encode_body`.
        longest: seconds after which the exchange is broken off.
    """
    status: int | None = None
    headers: dict[str, str] = {}
    body = bytearray()
    chunks: list[tuple[int, int]] = []
    transport_error: str | None = None
    started = datetime.now(UTC).isoformat()
    start = perf_counter()
    try:
        async with (
            asyncio.timeout(longest),
            client.stream("POST", "chat/completions", content=request) as response,
        ):
            status = response.status_code
            headers = {name: text for name, text in response.headers.items() if name not in _SECRET_HEADERS}
            encoded = "content-encoding" in response.headers  # though none was asked for
            async for chunk in response.aiter_bytes() if encoded else response.aiter_raw():
                body += chunk
                chunks.append((len(body), int((perf_counter() - start) * 1e6)))
    except TimeoutError:
        transport_error = f"the reply did not end within {longest:g} seconds"
    except httpx.RequestError as error:
        transport_error = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Transfer(
        request=request,
        status=status,
        headers={name: _masked_text(client, text) for name, text in headers.items()},
        body=_masked(client, bytes(body)),
        chunks=tuple(chunks),
        started=started,
        seconds=perf_counter() - start,
        transport_error=transport_error and _masked_text(client, transport_error),
    )


def _masked(client: httpx.AsyncClient, data: bytes) -> bytes:
    """The data, with the client's key, should a host echo it, overwritten by as many asterisks."""
    key = client.headers.get("Authorization", "").removeprefix("Bearer ").encode()
    return data.replace(key, b"*" * len(key)) if key else data


def _masked_text(client: httpx.AsyncClient, text: str) -> str:
    return _masked(client, text.encode()).decode()
