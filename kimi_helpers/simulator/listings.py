"""The models behind the simulator, and OpenRouter's listings of models, endpoints, keys and generations."""

from dataclasses import dataclass
from typing import Any

from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.simulator.bodies import Generation
from kimi_helpers.simulator.hosts import HOSTS, Host
from kimi_helpers.simulator.noncanonical import SplitKind

CONTEXT_LENGTH = 262_144
RELEASED = 1_769_500_000
PARAMETERS = ["include_reasoning", "max_completion_tokens", "max_tokens", "reasoning", "seed", "tool_choice", "tools"]
PARAMETERS_OF_EVIDENCE = {None: [], "ids": ["return_token_ids"], "bytes": ["logprobs"], "content bytes": ["logprobs"]}
# Scripted, as the replies are: in milliseconds to the first token, and in tokens a second.
SCRIPTED_LATENCY = {"p50": 850, "p75": 1200, "p90": 2100, "p99": 6400}
SCRIPTED_THROUGHPUT = {"p50": 61.5, "p75": 48, "p90": 33, "p99": 12.5}
DESCRIPTION = "A scripted model on this machine: its answers are drawn from texts of the project's own."
ARCHITECTURE = {
    "modality": "text->text",
    "input_modalities": ["text"],
    "output_modalities": ["text"],
    "tokenizer": "Other",
    "instruct_type": None,
}


@dataclass(frozen=True)
class Model:
    """A model that can be asked for.

    Attributes:
        slug: the name in a request.
        canonical_slug: the dated name that replies carry.
        name: the display name.
        format: its layout of prompts and completions.
    """

    slug: str
    canonical_slug: str
    name: str
    format: ModelFormat


MODELS = (
    Model("moonshotai/kimi-k2", "moonshotai/kimi-k2", "MoonshotAI: Kimi K2 0711", FORMATS["kimi-k2"]),
    Model(
        "moonshotai/kimi-k2-thinking",
        "moonshotai/kimi-k2-thinking-20251106",
        "MoonshotAI: Kimi K2 Thinking",
        FORMATS["kimi-k2-thinking"],
    ),
    Model("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-0127", "MoonshotAI: Kimi K2.5", FORMATS["kimi-k2.5"]),
    Model("moonshotai/kimi-k2.6", "moonshotai/kimi-k2.6-20260420", "MoonshotAI: Kimi K2.6", FORMATS["kimi-k2.6"]),
)


def find_model(slug: str) -> Model | None:
    """The model of a slug or a canonical slug."""
    return next((model for model in MODELS if slug in (model.slug, model.canonical_slug)), None)


def models_listing() -> dict[str, Any]:
    """The body of `GET /models`."""
    return {"data": [_listed_model(model) for model in MODELS]}


def _listed_model(model: Model) -> dict[str, Any]:
    return {
        "id": model.slug,
        "canonical_slug": model.canonical_slug,
        "hugging_face_id": "",
        "name": model.name,
        "created": RELEASED,
        "description": DESCRIPTION,
        "context_length": CONTEXT_LENGTH,
        "architecture": ARCHITECTURE,
        "pricing": _pricing(min(HOSTS, key=lambda host: (float(host.completion_price), float(host.prompt_price)))),
        "top_provider": {
            "context_length": CONTEXT_LENGTH,
            "max_completion_tokens": CONTEXT_LENGTH,
            "is_moderated": False,
        },
        "per_request_limits": None,
        "supported_parameters": PARAMETERS,
        "default_parameters": {},
        "expiration_date": None,
        "links": {"details": f"/api/v1/models/{model.canonical_slug}/endpoints"},
    }


def endpoints_listing(model: Model) -> dict[str, Any]:
    """The body of `GET /models/{author}/{slug}/endpoints`: an endpoint for every host."""
    return {
        "data": {
            "id": model.slug,
            "name": model.name,
            "created": RELEASED,
            "description": DESCRIPTION,
            "architecture": ARCHITECTURE,
            "endpoints": [_listed_endpoint(host, model) for host in HOSTS],
        }
    }


def _listed_endpoint(host: Host, model: Model) -> dict[str, Any]:
    return {
        "name": f"{host.name} | {model.canonical_slug}",
        "model_id": model.slug,
        "model_name": model.name,
        "context_length": CONTEXT_LENGTH,
        "pricing": _pricing(host),
        "provider_name": host.name,
        "tag": host.tag,
        "quantization": host.quantization,
        "max_completion_tokens": CONTEXT_LENGTH,
        "max_prompt_tokens": None,
        "supported_parameters": sorted(PARAMETERS + PARAMETERS_OF_EVIDENCE[host.evidence]),
        "status": 0,
        "uptime_last_5m": 100,
        "uptime_last_30m": 100,
        "uptime_last_1d": 100,
        "latency_last_30m": SCRIPTED_LATENCY,
        "throughput_last_30m": SCRIPTED_THROUGHPUT,
        "supports_implicit_caching": False,
    }


def _pricing(host: Host) -> dict[str, str]:
    return {"prompt": host.prompt_price, "completion": host.completion_price}


def key_listing() -> dict[str, Any]:
    """The body of `GET /key`: a key without a limit."""
    spent = ("usage", "usage_daily", "usage_weekly", "usage_monthly", "byok_usage")
    return {
        "data": {
            "label": "loopback",
            "limit": None,
            "limit_remaining": None,
            "limit_reset": None,
            **dict.fromkeys(spent, 0),
            "include_byok_in_limit": False,
            "is_free_tier": False,
            "expires_at": None,
            "is_management_key": False,
        }
    }


def generation_listing(generation: Generation) -> dict[str, Any]:
    """The body of `GET /generation`."""
    answer, usage = generation.answer, generation.usage
    return {
        "data": {
            "id": generation.id,
            "upstream_id": None,
            "provider_name": generation.host.name,
            "model": generation.model,
            "streamed": generation.streamed,
            "cancelled": False,
            "finish_reason": answer.finish_reason,
            "native_finish_reason": answer.finish_reason,
            "tokens_prompt": usage["prompt_tokens"],
            "tokens_completion": usage["completion_tokens"],
            "native_tokens_prompt": usage["prompt_tokens"],
            "native_tokens_completion": usage["completion_tokens"],
            "native_tokens_reasoning": answer.reasoning_tokens,
            "native_tokens_cached": 0,
            "total_cost": usage["cost"],
            "usage": usage["cost"],
            "cache_discount": None,
            "created_at": generation.created,
            "api_type": "completions",
        }
    }


def truth_listing(generation: Generation, kind: SplitKind) -> dict[str, Any]:
    """What was really given and sampled, for scoring alone; the real API has nothing like it.

    Args:
        generation: a reply that was given.
        kind: how its ids differ from the tokenizer's own split.
    """
    return {
        "token_ids": generation.completion.token_ids,
        "prompt_ids": generation.completion.prompt_ids,
        "host": generation.host.slug,
        "kind": kind,
    }
