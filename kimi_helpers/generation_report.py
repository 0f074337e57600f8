"""What a generation run brought back, as tables: what each request came to, and what each attempt took and cost."""

from pathlib import Path
from typing import Any

import pandas as pd

from kimi_helpers.journal import read_journal
from kimi_helpers.replies import Reply
from kimi_helpers.reply_sources import parse_raw, raw_of
from kimi_helpers.workspace import printable

COLUMNS = {
    "endpoint": "string",
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
ATTEMPT_COLUMNS = {
    "key": "string",
    "endpoint": "string",
    "outcome": "string",
    "status": "Int64",
    "seconds": "Float64",
    "first_byte_seconds": "Float64",
    "completion_tokens": "Int64",
    "cost": "Float64",
}
REPLY = "reply"


def reply_table(journal: Path) -> pd.DataFrame:
    """One row a settled request of a journal, in the order of arrival.

    Columns: `endpoint`, the slug that was asked; `provider` as the reply states it; `generation_id`; `outcome`,
    `reply` or the kind of failure; `failure`, why there is no reply; `finish_reason`; token counts as billed; lengths
    in characters; `cost` in US dollars. Missing where not stated.
    """
    rows = []
    for exchange in read_journal(journal, settled=True):
        outcome = parse_raw(raw_of(journal, exchange)).outcome
        text = outcome if isinstance(outcome, Reply) else outcome.partial
        usage = outcome.usage
        rows.append(
            {
                "endpoint": exchange.provider,
                "provider": outcome.provider,
                "generation_id": outcome.generation_id,
                "outcome": REPLY if isinstance(outcome, Reply) else outcome.kind.value,
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


def attempt_table(journal: Path) -> pd.DataFrame:
    """One row an attempt of a journal, in the order in which they ended; failed ones and those tried again too.

    Columns: `key` of what was asked; `endpoint`, its slug; `outcome`, `reply` or the kind of failure; `status` of HTTP;
    `seconds` from the request to the reply's end, and to its first byte; `completion_tokens` and `cost` in US dollars
    as billed. Missing where not stated.
    """
    rows = []
    for exchange in read_journal(journal):
        sent = exchange.transfer
        rows.append(
            {
                "key": exchange.key,
                "endpoint": exchange.provider,
                "outcome": exchange.failure or REPLY,
                "status": sent.status,
                "seconds": sent.seconds,
                "first_byte_seconds": sent.chunks[0][1] / 1e6 if sent.chunks else None,
                "completion_tokens": exchange.completion_tokens,
                "cost": exchange.cost,
            }
        )
    return pd.DataFrame(rows, columns=list(ATTEMPT_COLUMNS)).astype(ATTEMPT_COLUMNS)


def outcome_counts(table: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Endpoint -> finish reason of a reply, or `failed: KIND` -> requests; the frequent first."""
    ended = table["finish_reason"].fillna("?").where(table["outcome"] == REPLY, "failed: " + table["outcome"])
    order = ended.value_counts().index
    counts = pd.crosstab(table["endpoint"], ended).reindex(columns=order)
    return {str(endpoint): {str(kind): int(row[kind]) for kind in order} for endpoint, row in counts.iterrows()}


def by_cost(attempts: pd.DataFrame) -> pd.DataFrame:
    """A row an endpoint: dollars of all attempts, the part that gave no reply, and dollars per million reply tokens."""
    is_reply = attempts["outcome"] == REPLY
    billed = attempts.assign(
        lost=attempts["cost"].where(~is_reply, 0.0), tokens=attempts["completion_tokens"].where(is_reply, 0)
    )
    sums = billed.groupby("endpoint")[["cost", "lost", "tokens"]].sum()
    sums["rate"] = sums["cost"] / sums["tokens"].where(sums["tokens"] > 0) * 1e6
    names = {
        "cost": "dollars",
        "lost": "of them without a reply",
        "tokens": "completion tokens of replies",
        "rate": "dollars per million of them",
    }
    return sums.rename(columns=names).round(6)


def by_speed(attempts: pd.DataFrame) -> pd.DataFrame:
    """A row an endpoint, of the attempts that gave a reply: seconds, and completion tokens a second of the exchange."""
    replies = attempts[attempts["outcome"] == REPLY]
    timed = replies.assign(speed=replies["completion_tokens"] / replies["seconds"])
    groups = timed.groupby("endpoint")
    return pd.DataFrame(
        {
            "replies": groups.size(),
            "median seconds to the first byte": groups["first_byte_seconds"].median(),
            "median seconds": groups["seconds"].median(),
            "90 % within seconds": groups["seconds"].quantile(0.9),
            "median tokens/s": groups["speed"].median(),
        }
    ).round(3)


def by_failure(attempts: pd.DataFrame) -> pd.DataFrame:
    """A row a kind of failure: attempts, the requests behind them, how many of those got a reply after all, dollars."""
    failed = attempts[attempts["outcome"] != REPLY]
    answered = set(attempts.loc[attempts["outcome"] == REPLY, "key"])
    groups = failed.groupby("outcome")
    return pd.DataFrame(
        {
            "attempts": groups.size(),
            "status": groups["status"].agg(_tally),
            "endpoints": groups["endpoint"].nunique(),
            "requests": groups["key"].nunique(),
            "got a reply after all": groups["key"].agg(lambda keys: len(answered.intersection(keys))),
            "dollars": groups["cost"].sum().round(6),
        }
    )


def by_provider(table: pd.DataFrame) -> pd.DataFrame:
    """A row a host: replies, failures, finish reasons, tool calls, median length, dollars."""
    groups = table.groupby("provider", dropna=False, sort=False)
    return pd.DataFrame(
        {
            "replies": groups["outcome"].agg(lambda kinds: int((kinds == REPLY).sum())),
            "failed": groups["outcome"].agg(lambda kinds: int((kinds != REPLY).sum())),
            "finish reasons": groups["finish_reason"].agg(_tally),
            "with tool calls": groups["tool_calls"].agg(lambda calls: int((calls > 0).sum())),
            "median completion tokens": groups["completion_tokens"].median(),
            "dollars": groups["cost"].sum().round(6),
        }
    )


def _tally(values: "pd.Series[Any]") -> str:
    return ", ".join(f"{value} {count}" for value, count in values.value_counts().items())


def describe_failures(table: pd.DataFrame) -> str:
    """A line a kind of failure: how many, and the first one's message, fit to print."""
    failed = table[table["outcome"] != REPLY]
    kinds = failed.groupby("outcome", sort=False)["failure"].agg(["size", "first"])
    lines = [f"{kind}: {row['size']}, the first: {printable(str(row['first']))}" for kind, row in kinds.iterrows()]
    return "\n".join(lines) or "no failures"
