"""What a generation run brought back, as a table: a row a settled request."""

from pathlib import Path

import pandas as pd

from kimi_helpers.replies import Reply
from kimi_helpers.reply_sources import read_sources
from kimi_helpers.workspace import printable

COLUMNS = {
    "provider": "string",
    "generation_id": "string",
    "outcome": "string",
    "finish_reason": "string",
    "failure": "string",
    "prompt_tokens": "Int64",
    "completion_tokens": "Int64",
    "reasoning_characters": "Int64",
    "content_characters": "Int64",
    "tool_calls": "Int64",
    "cost": "Float64",
}


def reply_table(journal: Path) -> pd.DataFrame:
    """One row a settled request of a journal, in the order of arrival.

    Columns: `provider` as the reply states it; `generation_id`; `outcome`, `reply` or the kind of failure; `failure`,
    why there is no reply; `finish_reason`; token counts as billed; lengths in characters; `cost` in US dollars.
    Missing where not stated.
    """
    rows = []
    for sourced in read_sources([journal]):
        outcome = sourced.outcome
        text = outcome if isinstance(outcome, Reply) else outcome.partial
        usage = outcome.usage
        rows.append(
            {
                "provider": outcome.provider,
                "generation_id": outcome.generation_id,
                "outcome": "reply" if isinstance(outcome, Reply) else outcome.kind.value,
                "failure": None if isinstance(outcome, Reply) else outcome.message,
                "finish_reason": (text.finish_reason or None) if text else None,
                "prompt_tokens": usage.prompt_tokens if usage else None,
                "completion_tokens": usage.completion_tokens if usage else None,
                "reasoning_characters": len(text.reasoning or "") if text else None,
                "content_characters": len(text.content or "") if text else None,
                "tool_calls": len(text.tool_calls) if text else None,
                "cost": usage.cost if usage else None,
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def by_provider(table: pd.DataFrame) -> pd.DataFrame:
    """A row a host: replies, failures, finish reasons, tool calls, median length, dollars."""
    groups = table.groupby("provider", dropna=False, sort=False)
    return pd.DataFrame(
        {
            "replies": groups["outcome"].agg(lambda kinds: int((kinds == "reply").sum())),
            "failed": groups["outcome"].agg(lambda kinds: int((kinds != "reply").sum())),
            "finish reasons": groups["finish_reason"].agg(_tally),
            "with tool calls": groups["tool_calls"].agg(lambda calls: int((calls > 0).sum())),
            "median completion tokens": groups["completion_tokens"].median(),
            "dollars": groups["cost"].sum().round(6),
        }
    )


def _tally(values: "pd.Series[str]") -> str:
    return ", ".join(f"{value} {count}" for value, count in values.value_counts().items())


def describe_failures(table: pd.DataFrame) -> str:
    """A line a kind of failure: how many, and the first one's message, fit to print."""
    failed = table[table["outcome"] != "reply"]
    kinds = failed.groupby("outcome", sort=False)["failure"].agg(["size", "first"])
    lines = [f"{kind}: {row['size']}, the first: {printable(str(row['first']))}" for kind, row in kinds.iterrows()]
    return "\n".join(lines) or "no failures"
