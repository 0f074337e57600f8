"""The endpoint listing of a model as a table that can be filtered and sorted."""

from collections.abc import Collection, Sequence

import pandas as pd

from kimi_helpers.listings import Endpoint
from kimi_helpers.workspace import printable

# Of many parameters, those that decide how well ids can be proven, and what can be asked for.
TOLD_PARAMETERS = ("logprobs", "return_token_ids", "seed", "tools", "tool_choice", "reasoning")


def listing_table(endpoints: Sequence[Endpoint]) -> pd.DataFrame:
    """A row an endpoint; prices in US dollars a million tokens, latency in seconds to the first token.

    Missing where the provider does not say.
    """
    rows = [
        {
            "endpoint": printable(each.tag),
            "provider": printable(each.provider_name),
            "quantization": printable(each.quantization or "unknown"),
            "prompt $/M": _million(each.pricing.prompt),
            "completion $/M": _million(each.pricing.completion),
            "context": each.context_length,
            "most completion": each.max_completion_tokens,
            "uptime 30 min %": each.uptime_last_30m,
            "latency p50 s": each.latency_last_30m and each.latency_last_30m.p50 and each.latency_last_30m.p50 / 1000,
            "tokens/s p50": each.throughput_last_30m and each.throughput_last_30m.p50,
            "status": each.status,
            **{name: name in each.supported_parameters for name in TOLD_PARAMETERS},
        }
        for each in endpoints
    ]
    return pd.DataFrame(rows)


def _million(price: object) -> float | None:
    return None if price is None else float(str(price)) * 1e6


def select_endpoints(
    table: pd.DataFrame,
    sort_by: str,
    *,
    quantizations: Collection[str] = (),
    parameters: Collection[str] = (),
    most_completion_price: float | None = None,
) -> pd.DataFrame:
    """The rows of `listing_table` that fit, sorted; what is not stated comes last.

    Args:
        table: of `listing_table`.
        sort_by: a column, descending with a `-` in front.
        quantizations: those allowed; empty: all.
        parameters: of `TOLD_PARAMETERS`, all of which an endpoint must list.
        most_completion_price: US dollars a million completion tokens.

    Raises:
        ValueError: there is no such column or parameter.
    """
    column = sort_by.removeprefix("-")
    unknown = [name for name in (column, *parameters) if name not in table.columns]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; the columns are {', '.join(table.columns)}")
    kept = table
    if quantizations:
        kept = kept[kept["quantization"].isin(list(quantizations))]
    for name in parameters:
        kept = kept[kept[name]]
    if most_completion_price is not None:
        kept = kept[kept["completion $/M"] <= most_completion_price]
    return kept.sort_values(column, ascending=not sort_by.startswith("-"), na_position="last").reset_index(drop=True)
