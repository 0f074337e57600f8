"""Where the requests of a run go: to endpoints whose name, weights and prices are known before anything is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import httpx

from kimi_helpers.apis import OpenRouterError, api_of
from kimi_helpers.listings import Endpoint, EndpointListing, find_endpoint, list_endpoints

UNPINNED = "unpinned"


@dataclass(frozen=True)
class Target:
    """One endpoint.

    Attributes:
        slug: the full slug that requests name in `provider.only`; None where nothing is pinned or nobody routes.
        label: stands for the provider in the journal.
        endpoint: its listing; None where the API has none.
    """

    slug: str | None
    label: str
    endpoint: Endpoint | None = None

    @property
    def provider_name(self) -> str | None:
        """Who must answer, as replies name it."""
        return self.endpoint.provider_name if self.endpoint else None

    @property
    def quantization(self) -> str | None:
        """As requests name it; an endpoint that does not say counts as `unknown`."""
        return (self.endpoint.quantization or "unknown") if self.endpoint else None

    def offers(self, parameter: str) -> bool:
        """Whether a request may hold the parameter, as far as is known."""
        return not self.endpoint or parameter in self.endpoint.supported_parameters

    def dollars(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What a request of some length costs without any cache, at the highest price listed; None where none is."""
        pricing = self.endpoint.pricing if self.endpoint else None
        if not pricing or pricing.prompt is None or pricing.completion is None:
            return None
        longer = [each for each in pricing.overrides or () if prompt_tokens >= each.min_prompt_tokens]
        prompt = max([pricing.prompt, *(each.prompt for each in longer if each.prompt is not None)])
        completion = max([pricing.completion, *(each.completion for each in longer if each.completion is not None)])
        return float(prompt * prompt_tokens + completion * completion_tokens + (pricing.request or Decimal(0)))


async def find_targets(
    client: httpx.AsyncClient, model: str, providers: Sequence[str], *, unpinned: bool = False
) -> tuple[list[Target], EndpointListing | None]:
    """The endpoints that a run asks, with the listing that says so.

    Args:
        providers: slugs; none for a server that is its own provider, and for an unpinned run.
        unpinned: leave the choice of the provider to the gateway, for each request anew.

    Raises:
        OpenRouterError: a slug pins no single endpoint, there is no listing, or no provider is named where one must be.
    """
    if not api_of(client.base_url).routes:
        if len(providers) > 1 or unpinned:
            raise OpenRouterError(f"{client.base_url.host} is one provider: leave `providers` empty, and pin nothing.")
        return [Target(None, next(iter(providers), client.base_url.host))], None
    if unpinned:
        if providers:
            raise OpenRouterError("An unpinned run names no providers: drop them, or drop `unpinned`.")
        return [Target(None, UNPINNED)], None
    if not providers:
        raise OpenRouterError(
            "No provider is named: replies of mixed hosts cannot be reconstructed, so name at least one, or say "
            "`unpinned` where the replies are for reading only."
        )
    listing = await list_endpoints(client, model)
    found = [find_endpoint(listing.endpoints, slug) for slug in dict.fromkeys(providers)]
    return [Target(each.tag, each.tag, each) for each in dict.fromkeys(found)], listing
