"""Hosts beside each other on the same prompts: how many replies, how exact, how fast, for how much.

Shares have Wilson's interval, the rest the bootstrap's, both 95 %. The figure that matters is dollars per million exact
completion tokens: all that was billed, failures and inexact rows too, over the tokens of exact rows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from kimi_helpers.graded_rows import GradedRow
from kimi_helpers.intervals import Floats, Interval, bootstrap, wilson
from kimi_helpers.journal import read_journal
from kimi_helpers.prompt_check import PromptGrade
from kimi_helpers.providers import pinned_slug
from kimi_helpers.reconstruction import Grade
from kimi_helpers.replies import Reply
from kimi_helpers.reply_sources import SourcedReply
from kimi_helpers.tool_call_checks import calls_are_valid, f1, triggers
from kimi_helpers.workspace import printable

KNOWN_PROMPTS = (PromptGrade.engine_ids, PromptGrade.equal, PromptGrade.identified)


@dataclass(frozen=True)
class Compared:
    """One settled request, as far as hosts are compared by it.

    Attributes:
        host: as its replies name it.
        slug: the endpoint asked for.
        asked: the request without what differs between hosts: the same for all of them.
        grade, prompt_grade: of the reply.
        triggered: whether it ended in tool calls; None where there is no reply or no tools were declared.
        valid: whether its calls fit their schemas; None where there are none.
        cut: whether the length limit cut it.
        seconds, first_seconds: of the exchange, and to its first bytes; None where they were not kept.
        tokens: billed completion tokens.
        dollars: billed; None where the host states none.
    """

    host: str
    slug: str | None
    asked: str
    grade: Grade
    prompt_grade: PromptGrade
    triggered: bool | None
    valid: bool | None
    cut: bool
    seconds: float | None
    first_seconds: float | None
    tokens: int
    dollars: float | None

    @property
    def exact_tokens(self) -> int:
        """Completion tokens that may be trained on as the model's own."""
        return self.tokens if self.grade.is_exact else 0


@dataclass(frozen=True)
class HostComparison:
    """The figures of one host; see `compared_rows` for what each counts.

    Attributes:
        host, slug: who.
        requests: how many were settled.
        success: share that gave a reply.
        exact: share of all requests with exact ids.
        prompts_known: share of the replies whose prompt is known.
        calls_valid: schema accuracy of the vendor verifier.
        trigger_f1: trigger similarity of the vendor verifier; its n is the requests that both answered.
        cut: share of the replies cut by their length.
        latency_p50, latency_p95: seconds for the whole exchange.
        tokens_a_second: completion tokens a second of the exchange.
        dollars_a_million: a million completion tokens, as billed, prompts included.
        dollars_a_million_exact: the same over exact tokens alone; no value where there are none.
        grades: grade -> number.
    """

    host: str
    slug: str | None
    requests: int
    success: Interval
    exact: Interval
    prompts_known: Interval
    calls_valid: Interval
    trigger_f1: Interval
    cut: Interval
    latency_p50: Interval
    latency_p95: Interval
    tokens_a_second: Interval
    dollars_a_million: Interval
    dollars_a_million_exact: Interval
    grades: Mapping[str, int]


def exchange_times(journals: Iterable[Path]) -> dict[str, tuple[float, float | None]]:
    """Source of a reply, as `read_sources` names it -> seconds of its exchange, and to its first bytes."""
    times: dict[str, tuple[float, float | None]] = {}
    for path in journals:
        for exchange in read_journal(path):
            first = exchange.transfer.chunks[0][1] / 1e6 if exchange.transfer.chunks else None
            times[f"{path}#{exchange.key[:16]}"] = (exchange.transfer.seconds, first)
    return times


def compared_rows(
    replies: Iterable[SourcedReply],
    rows: Iterable[GradedRow],
    times: Mapping[str, tuple[float, float | None]] | None = None,
) -> list[Compared]:
    """Replies and their graded rows, in the same order, as rows to compare."""
    return [
        _compared(sourced, row, (times or {}).get(row.source, (None, None)))
        for sourced, row in zip(replies, rows, strict=True)
    ]


def _compared(sourced: SourcedReply, row: GradedRow, time: tuple[float | None, float | None]) -> Compared:
    outcome, request = sourced.outcome, sourced.request or {}
    reply = outcome if isinstance(outcome, Reply) else None
    usage = outcome.usage
    same = {name: value for name, value in request.items() if name not in ("provider", "logprobs", "return_token_ids")}
    return Compared(
        host=row.host,
        slug=pinned_slug(sourced),
        asked=json.dumps(same, sort_keys=True) if request else row.source,
        grade=row.grade,
        prompt_grade=row.prompt_grade,
        triggered=triggers(reply) if reply and request.get("tools") else None,
        valid=calls_are_valid(reply, request) if reply else None,
        cut=row.finish_reason == "length",
        seconds=time[0],
        first_seconds=time[1],
        tokens=(usage.completion_tokens or 0) if usage else 0,
        dollars=usage.cost if usage else None,
    )


def compare_hosts(rows: Sequence[Compared], reference: str | None = None) -> list[HostComparison]:
    """The figures of each host, in the order of their first rows.

    A failure that names no host belongs to the host that the same endpoint's replies name.

    Args:
        rows: of `compared_rows`.
        reference: the host whose triggers are the reference; None leaves trigger agreement out.
    """
    names = {row.slug: row.host for row in rows if row.slug and row.grade != Grade.failed}
    groups: dict[str, list[Compared]] = {}
    for row in rows:
        groups.setdefault(names.get(row.slug or "", row.host), []).append(row)
    theirs = {row.asked: row.triggered for row in groups.get(reference or "", ()) if row.triggered is not None}
    return [_compare(host, group, theirs) for host, group in groups.items()]


def _compare(host: str, rows: Sequence[Compared], theirs: Mapping[str, bool | None]) -> HostComparison:
    replies = [row for row in rows if row.grade != Grade.failed]
    judged = [row.valid for row in rows if row.valid is not None]
    pairs = [(row.triggered, theirs[row.asked]) for row in rows if row.triggered is not None and row.asked in theirs]
    timed = [(row.seconds, row.tokens) for row in replies if row.seconds is not None]
    billed = [(row.dollars or 0.0, row.tokens, row.exact_tokens) for row in rows]
    priced = billed if any(row.dollars is not None for row in rows) else []
    return HostComparison(
        host=host,
        slug=next((row.slug for row in rows if row.slug), None),
        requests=len(rows),
        success=wilson(len(replies), len(rows)),
        exact=wilson(sum(row.grade.is_exact for row in rows), len(rows)),
        prompts_known=wilson(sum(row.prompt_grade in KNOWN_PROMPTS for row in replies), len(replies)),
        calls_valid=wilson(sum(judged), len(judged)),
        trigger_f1=_agreement(pairs),
        cut=wilson(sum(row.cut for row in replies), len(replies)),
        latency_p50=bootstrap(timed, lambda samples: np.quantile(samples[..., 0], 0.5, axis=1)),
        latency_p95=bootstrap(timed, lambda samples: np.quantile(samples[..., 0], 0.95, axis=1)),
        tokens_a_second=bootstrap(timed, lambda samples: _ratio(samples[..., 1], samples[..., 0])),
        dollars_a_million=bootstrap(priced, lambda samples: 1e6 * _ratio(samples[..., 0], samples[..., 1])),
        dollars_a_million_exact=bootstrap(priced, lambda samples: 1e6 * _ratio(samples[..., 0], samples[..., 2])),
        grades={grade.value: sum(row.grade == grade for row in rows) for grade in Grade},
    )


def _ratio(over: Floats, under: Floats) -> Floats:
    """Sum over sum, of each sample; not finite where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(over.sum(axis=1) / under.sum(axis=1))


def _agreement(pairs: Sequence[tuple[bool | None, bool | None]]) -> Interval:
    """The F1 score with its bootstrap interval; no value where neither host ever triggers."""
    outcomes = [(float(bool(a and b)), float(bool(a and not b)), float(bool(b and not a))) for a, b in pairs]
    both, ours, reference = (int(sum(column)) for column in zip(*outcomes, strict=True)) if outcomes else (0, 0, 0)
    value = f1(both, ours, reference)
    if value is None:
        return Interval(None, None, None, len(pairs))
    found = bootstrap(outcomes, lambda samples: _f1_of(samples.sum(axis=1)))
    return Interval(value, found.low, min(found.high or 1.0, 1.0), len(pairs))


def _f1_of(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2 * sums[:, 0] / (2 * sums[:, 0] + sums[:, 1] + sums[:, 2]))


def comparison_table(compared: Iterable[HostComparison]) -> pd.DataFrame:
    """A row a host, each figure as text with its interval and n."""
    digits = {
        "dollars_a_million": 3,
        "dollars_a_million_exact": 3,
        "latency_p50": 3,
        "latency_p95": 3,
        "tokens_a_second": 0,
    }
    rows = {
        printable(each.host): {
            field.name.replace("_", " "): value.text(digits.get(field.name, 2))
            if isinstance(value, Interval)
            else value
            for field in fields(each)
            if field.name not in ("host", "grades")
            for value in [getattr(each, field.name)]
        }
        for each in compared
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("host")
