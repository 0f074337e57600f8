"""What the API tells beside replies: models, the endpoints of a model with their prices, a finished generation, a key.

Listings are untrusted input: they are checked by type, fields that are not known here pass by, and what a host does
not state is None. Source of the fields: OpenRouter's OpenAPI description (`/models`, its `/endpoints`, `/generation`,
`/key`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, NoReturn, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_exponential

from kimi_helpers.openrouter import OpenRouterError

# A generation can be asked for some seconds after its reply (RooCode#915, LoCoDiff-bench#46).
GENERATION_PATIENCE = 60.0
FIRST_WAIT = 0.5

_Listed = ConfigDict(extra="ignore")


def _variable_is_none(price: Any) -> Any:
    """A router's listing states -1 for a price that depends on where a request goes."""
    return None if str(price).startswith("-") else price


Price = Annotated[Decimal | None, BeforeValidator(_variable_is_none)]


@checked_dataclass(frozen=True, config=_Listed)
class PriceOverride:
    """Prices from a length of the prompt on; what is None stays as it is.

    Attributes:
        min_prompt_tokens: from how many prompt tokens on.
        prompt, completion: dollars a token.
    """

    min_prompt_tokens: int = 0
    prompt: Price = None
    completion: Price = None


@checked_dataclass(frozen=True, config=_Listed)
class Pricing:
    """What an endpoint charges, in US dollars; None where it is not stated or depends on the request.

    Attributes:
        prompt, completion: a token.
        request: for each request, beside its tokens.
        input_cache_read: a prompt token that the host had in its cache.
        overrides: other prices for long prompts.
    """

    prompt: Price = None
    completion: Price = None
    request: Price = None
    input_cache_read: Price = None
    overrides: tuple[PriceOverride, ...] | None = None


@checked_dataclass(frozen=True, config=_Listed)
class Percentiles:
    """Of the requests of the last half hour."""

    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p99: float | None = None


@checked_dataclass(frozen=True, config=_Listed)
class Endpoint:
    """One provider's offer of a model.

    Attributes:
        tag: the full slug, e.g. `chutes/int4`, that pins a request to it.
        provider_name: as replies name it in `provider`.
        quantization: `int4`, `fp8` ...; None or `unknown` where the provider does not say.
        context_length, max_completion_tokens, max_prompt_tokens: in tokens.
        supported_parameters: of a request; others are dropped, or exclude the endpoint under `require_parameters`.
        status: 0 is well; below, the API routes around it.
        uptime_last_5m, uptime_last_30m, uptime_last_1d: percent.
        latency_last_30m: milliseconds to the first token.
        throughput_last_30m: tokens a second.
    """

    tag: str
    provider_name: str
    pricing: Pricing
    model_id: str | None = None
    quantization: str | None = None
    context_length: int | None = None
    max_completion_tokens: int | None = None
    max_prompt_tokens: int | None = None
    supported_parameters: frozenset[str] = frozenset()
    status: int | None = None
    uptime_last_5m: float | None = None
    uptime_last_30m: float | None = None
    uptime_last_1d: float | None = None
    latency_last_30m: Percentiles | None = None
    throughput_last_30m: Percentiles | None = None
    supports_implicit_caching: bool | None = None


@checked_dataclass(frozen=True, config=_Listed)
class ListedModel:
    """A model of `/models`.

    Attributes:
        id: the slug that a request names.
        canonical_slug: the dated name that replies carry.
    """

    id: str
    canonical_slug: str | None = None
    name: str | None = None
    context_length: int | None = None
    pricing: Pricing | None = None
    supported_parameters: frozenset[str] = frozenset()
    expiration_date: str | None = None


@checked_dataclass(frozen=True, config=_Listed)
class GenerationRecord:
    """What the API keeps of a reply: who served it, and what was billed by the model's own tokenizer.

    Attributes:
        native_tokens_prompt, native_tokens_completion, native_tokens_reasoning: counts of the model's tokenizer.
        total_cost: US dollars.
        latency, generation_time: milliseconds.
    """

    id: str
    provider_name: str | None = None
    model: str | None = None
    streamed: bool | None = None
    cancelled: bool | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    native_tokens_prompt: int | None = None
    native_tokens_completion: int | None = None
    native_tokens_reasoning: int | None = None
    native_tokens_cached: int | None = None
    total_cost: float | None = None
    latency: float | None = None
    generation_time: float | None = None


@checked_dataclass(frozen=True, config=_Listed)
class KeyRecord:
    """What a key may still spend, in US dollars; a limit of None is none."""

    label: str | None = None
    limit: float | None = None
    limit_remaining: float | None = None
    usage: float | None = None
    usage_daily: float | None = None
    is_free_tier: bool | None = None
    expires_at: str | None = None


@dataclass(frozen=True)
class EndpointListing:
    """The endpoints of a model at one moment. Prices and quantisations change: keep `body` with the run.

    Attributes:
        model: the slug asked for.
        fetched: UTC, ISO 8601.
        body: as received; `parse_endpoints` reads it again.
    """

    model: str
    fetched: str
    endpoints: tuple[Endpoint, ...]
    body: bytes


class _Endpoints(BaseModel):
    endpoints: tuple[Endpoint, ...]


_Data = TypeVar("_Data")


class _Envelope(BaseModel, Generic[_Data]):
    data: _Data


async def list_models(client: httpx.AsyncClient) -> tuple[ListedModel, ...]:
    """`GET /models`.

    Raises:
        OpenRouterError: no listing came.
    """
    return _read("models", await _get(client, "models"), tuple[ListedModel, ...])


async def list_endpoints(client: httpx.AsyncClient, model: str) -> EndpointListing:
    """`GET /models/{author}/{slug}/endpoints`: who serves a model, at what price.

    Args:
        model: `author/slug`.

    Raises:
        OpenRouterError: no listing came; the model may be misspelt.
    """
    path = f"models/{quote(model, safe='/:')}/endpoints"
    body = await _get(client, path)
    found = _read(path, body, _Endpoints).endpoints
    return EndpointListing(model, datetime.now(UTC).isoformat(timespec="seconds"), found, body)


def parse_endpoints(body: bytes) -> tuple[Endpoint, ...]:
    """The endpoints of a listing that was kept.

    Raises:
        OpenRouterError: it is no listing.
    """
    return _read("endpoints", body, _Endpoints).endpoints


async def fetch_key(client: httpx.AsyncClient) -> KeyRecord:
    """`GET /key`: the limits of the client's own key.

    Raises:
        OpenRouterError: no such answer came; the key may be refused.
    """
    return _read("key", await _get(client, "key"), KeyRecord)


async def fetch_generation(
    client: httpx.AsyncClient, generation_id: str, *, patience: float = GENERATION_PATIENCE
) -> GenerationRecord | None:
    """`GET /generation`: what was billed for a reply. It appears some seconds after the reply: 404 at first is normal.

    Args:
        generation_id: `Reply.generation_id`.
        patience: seconds after which None is returned where it is still not there.

    Raises:
        OpenRouterError: something else than the record or a 404 came.
    """
    path = f"generation?id={quote(generation_id, safe='')}"

    retrying = AsyncRetrying(
        retry=retry_if_result(lambda body: body is None),
        stop=stop_after_delay(patience),
        wait=wait_exponential(FIRST_WAIT, max=patience),
        retry_error_callback=lambda _: None,
    )
    body: bytes | None = await retrying(_get_if_there, client, path)
    return None if body is None else _read(path, body, GenerationRecord)


def find_endpoint(endpoints: Sequence[Endpoint], slug: str) -> Endpoint:
    """The one endpoint that a slug pins: its full slug, or its base slug where the provider has a single endpoint.

    A base slug stands for all variants of a provider (`deepinfra` also for `deepinfra/turbo`), which may serve other
    weights: such a slug pins nothing, and is refused.

    Raises:
        OpenRouterError: the slug names none or several; the message lists what can be named.
    """
    found = [each for each in endpoints if each.tag == slug or each.tag.startswith(f"{slug}/")]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(each.tag for each in found or endpoints)) or "none"
    problem = f"names {len(found)} endpoints" if found else "names no endpoint of this model"
    raise OpenRouterError(f"The provider {slug} {problem}: name one of {known}.")


async def _get(client: httpx.AsyncClient, path: str) -> bytes:
    body = await _get_if_there(client, path)
    if body is None:
        _fail(path, "the API answers with status 404; check the name, the key and the address")
    return body


async def _get_if_there(client: httpx.AsyncClient, path: str) -> bytes | None:
    """The body, or None where there is nothing under the path."""
    try:
        response = await client.get(path)
    except httpx.RequestError as error:
        _fail(path, f"the API cannot be reached ({type(error).__name__}); check the network and the address")
    if response.status_code == 404:
        return None
    if response.status_code != 200:
        _fail(path, f"the API answers with status {response.status_code}; check the name, the key and the address")
    return response.content


def _read(path: str, body: bytes, kind: type[_Data]) -> _Data:
    """The body's `data`, checked."""
    try:
        return _Envelope[kind].model_validate_json(body).data  # type: ignore[valid-type]
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in fault["loc"]) or "the body"
        _fail(path, f"the answer is no listing ({place}: {fault['msg']}); check the address")


def _fail(path: str, reason: str) -> NoReturn:
    raise OpenRouterError(f"GET {path}: {reason}.") from None
