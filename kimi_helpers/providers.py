"""Hosts as their replies show them: what is found of each, and the dated profile that reconstruction reads.

A profile leaves open every stack that is not told apart, so that no row is called exact that another of them would read
otherwise. Hosts change: a profile has a date, the endpoint and the model it was learnt from, and is flagged where it is
old or where new replies contradict it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import islice, zip_longest

import pandas as pd

from kimi_helpers.calibration import CalibrationPrompt, prompts_that_tell
from kimi_helpers.count_doubts import FEW_REPLIES
from kimi_helpers.formats import ModelFormat
from kimi_helpers.host_findings import Finding, stack_findings
from kimi_helpers.host_habits import TO_END_THINK, habit_findings
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.prompt_habits import prompt_finding
from kimi_helpers.reply_sources import SourcedReply
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.stack_inference import (
    TRANSPORTS,
    WEIGHTS,
    Inference,
    Judge,
    OpenCore,
    Witness,
    allowed_weight,
    infer_stack,
    witnesses_by_host,
)
from kimi_helpers.stack_space import Strips, stack_name, strip_sets
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import printable

# A profile of more stacks than this would make every reply ambiguous: it asks for more replies instead.
MOST_STACKS = 60
# After so many days a profile is to be learnt anew.
MOST_DAYS = 30


@dataclass(frozen=True)
class HostReport:
    """What the replies of one host show.

    Attributes:
        host: its name, as its replies state it.
        inference: of its serving stack.
        findings: part by part.
        slug: the endpoint that the requests pinned; None where they name none or several.
        model: the canonical slug of the replies; None where they name several.
    """

    host: str
    inference: Inference
    findings: tuple[Finding, ...]
    slug: str | None
    model: str | None

    @property
    def is_too_few(self) -> bool:
        """Whether the host's replies leave several stacks open, or are fewer than a profile may rest on."""
        return self.inference.counted < FEW_REPLIES or not self.has_one_stack

    @property
    def has_one_stack(self) -> bool:
        """Whether exactly one stack explains the replies."""
        return len(list(islice(self.inference.stacks(), 2))) == 1

    def finding(self, part: str) -> Finding | None:
        """The finding of a part; None where nothing bears on it."""
        return next((finding for finding in self.findings if finding.part == part), None)


def report_hosts(
    replies: Iterable[SourcedReply],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    format: ModelFormat | None = None,
) -> list[HostReport]:
    """What a batch of replies shows of each host, in the order of their first replies.

    Args:
        replies: of a calibration or of any journal.
        vocabulary_of: the vocabulary of a format.
        format: the layout of all replies; by default each reply's model tells.
    """
    groups = witnesses_by_host(replies, vocabulary_of, format)
    return [_report(host, witnesses, vocabulary_of) for host, witnesses in groups.items()]


def _report(host: str, witnesses: Sequence[Witness], vocabulary_of: Callable[[ModelFormat], Vocabulary]) -> HostReport:
    judge = Judge(vocabulary_of)
    inference = infer_stack(host, witnesses, judge)
    findings = [
        *stack_findings(inference, judge),
        *habit_findings(witnesses, inference.best, judge, vocabulary_of),
        prompt_finding(witnesses, vocabulary_of),
    ]
    slugs = {slug for witness in witnesses if (slug := pinned_slug(witness.sourced)) is not None}
    models = {witness.reply.model for witness in witnesses}
    return HostReport(
        host,
        inference,
        tuple(findings),
        slugs.pop() if len(slugs) == 1 else None,
        models.pop() if len(models) == 1 else None,
    )


def pinned_slug(sourced: SourcedReply) -> str | None:
    """The endpoint that a request pins; None where it pins none or leaves a choice."""
    routing = (sourced.request or {}).get("provider")
    only = routing.get("only") if isinstance(routing, Mapping) else None
    return str(only[0]) if isinstance(only, list) and len(only) == 1 else None


def profile_of(report: HostReport, today: date, quantization: str | None = None) -> ProviderProfile | None:
    """The profile that a host's replies support; None where no stack explains them or too many stay open.

    Args:
        report: of `report_hosts`.
        today: the profile's date.
        quantization: of the endpoint listing.
    """
    law = report.finding("reasoning_tokens")
    counts = law is not None and law.values == (TO_END_THINK,) and law.agreeing == law.n >= FEW_REPLIES
    stacks = dict.fromkeys(islice(_covering(report.inference), MOST_STACKS + 1))
    if not 0 < len(stacks) <= MOST_STACKS:
        return None
    named = [replace(stack, counts_reasoning=counts) for stack in stacks]
    counted, weight = report.inference.counted, report.inference.weight
    return ProviderProfile(
        provider=report.host,
        stacks=tuple(
            replace(each, name=f"{printable(report.host)}: {stack_name(each)}", seen="inferred") for each in named
        ),
        replies=counted,
        evidence=f"{counted} counted replies weigh {weight} against the best of the stacks left open",
        slug=report.slug,
        quantization=quantization or _quantization(report.slug),
        model=report.model,
        dated=today,
    )


def _quantization(slug: str | None) -> str | None:
    """What a full slug names, as `chutes/int4`."""
    _, mark, variant = (slug or "").partition("/")
    return variant if mark else None


def _covering(inference: Inference) -> Iterator[ServingStack]:
    """Stacks whose readings together are those of all that stay open.

    Where text is only stripped, the most that may be stripped has all sources of less; blanks of a detokeniser show
    which sides are not, so then every choice stays. Arguments that are dumped again count as trimmed as well, for what
    is no JSON.
    """
    for each in inference.open:
        sides = [_strips_to_name(each, transport, inference.most) for transport in TRANSPORTS]
        for whole, stream in zip_longest(*sides):
            pair = (whole if whole is not None else sides[0][-1], stream if stream is not None else sides[1][-1])
            yield replace(
                each.core,
                strips_json=pair[0],
                strips_stream=pair[1],
                strips_thinking_only=each.core.strips_thinking_only and any(pair),
                trims_arguments=each.core.trims_arguments or each.core.arguments != "sampled",
            )


def _strips_to_name(each: OpenCore, transport: str, most: int) -> list[Strips]:
    known = next((list(each.strips(name, most)) for name in each.weights if name == transport), list(strip_sets()))
    if each.core.blanks:
        return known
    return [one for one in known if not any(one < other for other in known)] + [
        one for one in known if not any(other < one for other in known)
    ][:1]


@dataclass(frozen=True)
class ProfileDoubt:
    """Why a profile is not to be trusted for a batch of replies: `stale`, `other model` or `contradicted`."""

    provider: str
    kind: str
    message: str


def doubt_profiles(
    profiles: Mapping[str, ProviderProfile],
    replies: Iterable[SourcedReply],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    today: date | None = None,
) -> list[ProfileDoubt]:
    """The profiles that are older than `MOST_DAYS`, of another model, or contradicted by replies.

    A profile is contradicted by the rule of inference: where the replies weigh more against its best stack than odd
    replies may.
    """
    today = today or datetime.now(UTC).date()
    groups = witnesses_by_host(replies, vocabulary_of)
    judge = Judge(vocabulary_of)
    found = []
    for provider, profile in profiles.items():
        name, witnesses = printable(provider), groups.get(provider, [])
        if profile.dated is not None and (days := (today - profile.dated).days) > MOST_DAYS:
            found.append(ProfileDoubt(provider, "stale", f"{name}: the profile is {days} days old; calibrate again"))
        others = Counter(w.reply.model for w in witnesses if profile.model and w.reply.model != profile.model)
        if others:
            told = ", ".join(printable(str(model)) for model in others)
            message = f"{name}: the profile was learnt from {printable(str(profile.model))}, replies are of {told}"
            found.append(ProfileDoubt(provider, "other model", message))
        weights = [sum(WEIGHTS[judge(witness, stack)] for witness in witnesses) for stack in profile.stacks]
        if min(weights) > allowed_weight(len(witnesses)):
            against = sum(all(WEIGHTS[judge(w, stack)] for stack in profile.stacks) for w in witnesses)
            message = (
                f"{name}: {against} of {len(witnesses)} replies contradict every stack of the profile; calibrate again"
            )
            found.append(ProfileDoubt(provider, "contradicted", message))
    return found


def finding_rows(reports: Iterable[HostReport], prompts: Sequence[CalibrationPrompt]) -> pd.DataFrame:
    """A row a host and part: value or values left open, n, how many agree, confidence, prompts that would tell."""
    rows = [
        {
            "host": printable(report.host),
            "part": finding.part,
            "value": printable(" | ".join(finding.values)) or "nothing explains it",
            "n": finding.n,
            "agreeing": finding.agreeing,
            "confidence": round(finding.confidence, 2),
            "would tell": "" if finding.settled else ", ".join(prompts_that_tell(finding.tells, prompts)[:3]),
        }
        for report in reports
        for finding in report.findings
    ]
    return pd.DataFrame(rows, columns=["host", "part", "value", "n", "agreeing", "confidence", "would tell"])


def describe_host(report: HostReport) -> str:
    """A sentence a host: the stack, or how many cannot be told apart, and what the replies are worth."""
    counted, best = report.inference.counted, report.inference.best
    name = printable(report.host)
    if best is None:
        return f"{name}: no combination of the parts explains its {counted} counted replies."
    number = len(list(islice(report.inference.stacks(), MOST_STACKS + 1)))
    many = f"more than {MOST_STACKS}" if number > MOST_STACKS else str(number)
    few = f"; {counted} {'reply is' if counted == 1 else 'replies are'} too few" if counted < FEW_REPLIES else ""
    if number == 1:
        return f"{name}: {stack_name(best)} (n = {counted}){few}."
    return f"{name}: {many} stacks are not told apart, the plainest: {stack_name(best)} (n = {counted}){few}."
