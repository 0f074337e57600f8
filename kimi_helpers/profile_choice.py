"""Which known serving stacks explain all replies of a host: the profile that a batch of replies supports."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache

from kimi_helpers.formats import ModelFormat, format_of_model
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reading_search import Choices, Encode, encoder_of, in_ids
from kimi_helpers.readings import count_spelled, hides_start, layouts, most_spelled
from kimi_helpers.replies import Failure, Reply
from kimi_helpers.reply_sources import SourcedReply
from kimi_helpers.request_terms import Asked, cut_at_limit, read_request
from kimi_helpers.serving_stacks import ServingStack, Side
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import printable

FIELD_SIDES: frozenset[Side] = frozenset({"reasoning start", "reasoning end", "content start", "content end"})
# Tokens of blanks around the arguments of a call: a line end or two and a blank in front, one token behind.
LOST_AROUND = 3
UNSHOWN_STRIPS = ", stripping where no reply shows a blank"


@dataclass
class HostEvidence:
    """What the replies of one host say about the known stacks.

    Attributes:
        counted: replies with a billed count.
        explained: stack name -> how many of them it explains.
        shown: transport -> the sides at which some reply has a blank, so that the host does not strip them.
    """

    counted: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    shown: dict[str, set[Side]] = field(default_factory=lambda: {"json": set(), "sse": set()})


def host_of(outcome: Reply | Failure) -> str:
    """The host's name as the reply states it; replies that name none are told apart by their model's slug."""
    return outcome.provider or f"(unnamed host of {outcome.model or 'no model'})"


def weigh_stacks(
    replies: Iterable[SourcedReply],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    stacks: Mapping[str, ServingStack],
    format: ModelFormat | None = None,
) -> dict[str, HostEvidence]:
    """Count, for each host, the replies that each stack explains.

    Args:
        replies: a batch, or a sample of one.
        vocabulary_of: the vocabulary of a format.
        stacks: hypotheses by name.
        format: the layout of all replies; by default each reply's model tells.
    """
    evidence: dict[str, HostEvidence] = {}
    for sourced in replies:
        outcome, asked = sourced.outcome, read_request(sourced.request)
        layout = format or format_of_model(outcome.model or "")
        if isinstance(outcome, Failure) or layout is None or _billed(outcome) is None:
            continue
        vocabulary, outcome = vocabulary_of(layout), cut_at_limit(outcome, asked)
        if count_spelled(outcome, vocabulary) > most_spelled(outcome):
            continue  # it cannot be read, so it says nothing of its host
        of_host = evidence.setdefault(host_of(outcome), HostEvidence(explained=dict.fromkeys(stacks, 0)))
        of_host.counted += 1
        of_host.shown[outcome.transport] |= _blank_sides(outcome)
        encode = cache(encoder_of(vocabulary))
        for name, stack in stacks.items():
            of_host.explained[name] += explains_reply(outcome, vocabulary, layout, stack, asked, encode)
    return evidence


def _blank_sides(reply: Reply) -> set[Side]:
    reasoning, content = reply.reasoning or "", reply.content or ""
    blank: dict[Side, str] = {
        "reasoning start": reasoning[:1],
        "reasoning end": reasoning[-1:],
        "content start": content[:1],
        "content end": content[-1:],
    }
    return {side for side, character in blank.items() if character.isspace()}


class Verdict(StrEnum):
    """What a reply says of a serving stack.

    `explained`: some usual reading makes the count. `silent`: the reply cannot speak against the stack. `unusual`: only
    a reading in which the model left the law makes the count. `miscounted`: no reading makes it. `impossible`: no host
    with the stack returns such a text.
    """

    explained = "explained"
    silent = "silent"
    unusual = "unusual"
    miscounted = "miscounted"
    impossible = "impossible"


def judge_stack(
    reply: Reply, vocabulary: Vocabulary, format: ModelFormat, stack: ServingStack, asked: Asked, encode: Encode
) -> Verdict:
    """What a reply says of a stack.

    A cut reply is explained by any reading that is not longer: the host may have dropped what came last. A reply is
    silent without a count, where its sources are too many to be tried, or where its start may be hidden.
    """
    billed = _billed(reply)
    if hides_start(reply, stack, asked):
        return Verdict.silent
    found = Verdict.impossible
    for layout in layouts(reply, vocabulary, format, stack, asked):
        if billed is None or not layout.complete:
            return Verdict.silent
        choices = in_ids(layout, vocabulary, encode)
        if choices.makes(billed) or (reply.finish_reason == "length" and choices.fewest() <= billed):
            if layout.usual:
                return Verdict.explained
            found = Verdict.unusual
        elif stack.arguments != "sampled" and _lost_around(choices, billed, len(reply.tool_calls)):
            return Verdict.silent
        elif found is Verdict.impossible:
            found = Verdict.miscounted
    return found


def _lost_around(choices: Choices, billed: int, calls: int) -> bool:
    """Whether blanks around the arguments of calls, which a dump takes away and no reading lists, make the count."""
    return any(choices.makes(billed - lost) for lost in range(1, LOST_AROUND * calls + 1))


def explains_reply(
    reply: Reply, vocabulary: Vocabulary, format: ModelFormat, stack: ServingStack, asked: Asked, encode: Encode
) -> bool:
    """Whether a host with this stack can have returned the reply with its count."""
    verdict = judge_stack(reply, vocabulary, format, stack, asked, encode)
    return _billed(reply) is not None and verdict not in (Verdict.miscounted, Verdict.impossible)


def _billed(reply: Reply) -> int | None:
    return reply.usage.completion_tokens if reply.usage else None


def choose_profile(host: str, evidence: HostEvidence, stacks: Mapping[str, ServingStack]) -> ProviderProfile | None:
    """The profile that leaves open every stack which explains all counted replies; None where none does.

    Nothing tells a host that strips a side from one whose model wrote no blank there, so each stack also stays open
    with every side stripped at which no reply shows a blank.
    """
    explaining = [stacks[name] for name, number in evidence.explained.items() if number == evidence.counted]
    if not explaining or not evidence.counted:
        return None
    return ProviderProfile(
        provider=host,
        stacks=(*explaining, *(_with_unshown_strips(stack, evidence) for stack in explaining)),
        replies=evidence.counted,
        evidence=f"explains all {evidence.counted} counted replies of this batch",
    )


def _with_unshown_strips(stack: ServingStack, evidence: HostEvidence) -> ServingStack:
    return replace(
        stack,
        name=f"{stack.name}{UNSHOWN_STRIPS}",
        strips_json=stack.strips_json | (FIELD_SIDES - evidence.shown["json"]),
        strips_stream=stack.strips_stream | (FIELD_SIDES - evidence.shown["sse"]),
    )


def profiles_of_batch(
    replies: Iterable[SourcedReply],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    stacks: Mapping[str, ServingStack],
    format: ModelFormat | None = None,
) -> tuple[dict[str, ProviderProfile], list[str]]:
    """A profile for each host whose replies known stacks explain; and the hosts whose replies none does.

    Arguments as `weigh_stacks`. Where several stacks explain all replies of a host, its profile leaves them all open.
    """
    evidence = weigh_stacks(replies, vocabulary_of, stacks, format)
    chosen = {host: choose_profile(host, of_host, stacks) for host, of_host in evidence.items()}
    found = {host: profile for host, profile in chosen.items() if profile}
    return found, [host for host in chosen if host not in found]


def explaining_stacks(profile: ProviderProfile) -> list[str]:
    """The names of the stacks that explain a host's replies, those apart that only strip where nothing shows it."""
    return [stack.name for stack in profile.stacks if not stack.name.endswith(UNSHOWN_STRIPS)]


def describe_profiles(profiles: Mapping[str, ProviderProfile], unexplained: Sequence[str]) -> str:
    """A line a host: which serving stacks explain all its counted replies, how many those are, or that none does."""
    lines = [
        f"{printable(host)}: {' | '.join(explaining_stacks(profile))} (n = {profile.replies})"
        for host, profile in profiles.items()
    ]
    lines += [f"{printable(host)}: no known serving stack explains all its counted replies" for host in unexplained]
    return "\n".join(["Serving stacks that explain every counted reply of a host:", *lines])
