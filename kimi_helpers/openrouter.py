"""The HTTP client of OpenRouter: pinned requests, replies kept byte for byte.

Source of the fields and their effects: OpenRouter's documentation (parameters, provider routing, message
transforms, errors). Nothing here reads a reply: see `replies`.
"""

import asyncio
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx
from anyio.from_thread import start_blocking_portal
from pydantic import SecretStr

from kimi_helpers.formats import format_of_model
from kimi_helpers.prompts import Prompt

HOST = "openrouter.ai"
BASE_URL = f"https://{HOST}/api/v1"
KEY_VARIABLE = "OPENROUTER_API_KEY"

# Keep-alive comments reset the read timeout for ever, so the whole exchange has an end of its own.
LONGEST_EXCHANGE = 1800.0
TIMEOUTS = httpx.Timeout(connect=20, write=60, read=300, pool=None)

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie"})


class OpenRouterError(RuntimeError):
    """The API cannot be used as asked; the message is one sentence and holds no secret."""


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


def api_key() -> SecretStr:
    """The key from the environment, in a class that shows it nowhere.

    Raises:
        OpenRouterError: it is not set, or has characters that no HTTP header takes.
    """
    key = SecretStr(os.environ.get(KEY_VARIABLE, "").strip())
    if not key:
        raise OpenRouterError(f"{KEY_VARIABLE} is not set: export it in the shell that starts this program or Jupyter.")
    # httpx repeats a header it cannot send in its error: such a key must not get that far.
    if not all("!" <= character <= "~" for character in key.get_secret_value()):
        raise OpenRouterError(f"{KEY_VARIABLE} holds a blank or a character outside ASCII: copy the key again.")
    return key


def is_loopback(url: httpx.URL) -> bool:
    """Whether the address is of this machine, by its literal name: nothing is looked up."""
    try:
        return url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return False


def open_client(base_url: str = BASE_URL) -> httpx.AsyncClient:
    """A client for `async with`, for OpenRouter or for a server on this machine.

    The key is sent to OpenRouter alone. A loopback address gets none, and no proxy of the environment is used for it.

    Raises:
        OpenRouterError: the address is neither of the two, or there is no usable key.
    """
    url = httpx.URL(base_url)
    local = is_loopback(url)
    of_openrouter = url.scheme == "https" and (url.host == HOST or url.host.endswith(f".{HOST}"))
    if url.userinfo or not (local or of_openrouter):
        raise OpenRouterError(
            f"{url.scheme}://{url.host} gets no key of OpenRouter: use {BASE_URL}, or an address of this machine."
        )
    # Compression would hide which bytes came when; the gateway's own record of its routing goes into the reply.
    headers = {"Accept-Encoding": "identity", "X-OpenRouter-Metadata": "enabled"}
    if not local:
        headers["Authorization"] = f"Bearer {api_key().get_secret_value()}"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUTS, limits=limits, trust_env=not local)


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
    provider: str,
    *,
    max_tokens: int,
    temperature: float,
    top_p: float,
    seed: int | None,
    stream: bool,
    return_token_ids: bool = False,
    logprobs: bool = False,
) -> dict[str, Any]:
    """The body of `POST /chat/completions`, pinned to one provider, with nothing left to a host's default.

    Args:
        provider: a slug of the endpoint listing (`tag`); one without a variant matches all of its variants.
        seed: None where the endpoint takes none: `require_parameters` would refuse it.
        return_token_ids: ask for the sampled ids (vLLM, SGLang); only for a server that can.
        logprobs: ask for the sampled tokens with their bytes; only for an endpoint that lists the parameter.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": list(prompt.messages),
        # Not max_completion_tokens: few Kimi endpoints list it, and require_parameters excludes the others.
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "stream": stream,
        "provider": {"only": [provider], "allow_fallbacks": False, "require_parameters": True},
        # On by default where the context is short; it drops text from the middle of the prompt.
        "plugins": [{"id": "context-compression", "enabled": False}],
    }
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
        body["reasoning"] = {"enabled": prompt.thinking}
    return body


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
            client.stream(
                "POST", "chat/completions", content=request, headers={"Content-Type": "application/json"}
            ) as response,
        ):
            status = response.status_code
            headers = {name: text for name, text in response.headers.items() if name not in _SECRET_HEADERS}
            async for chunk in response.aiter_bytes():
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
