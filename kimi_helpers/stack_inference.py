"""Which combinations of stack parts explain all replies of a host, and which cannot be told apart yet.

The rule. A reply contradicts a stack by its text (weight 2: no host with the stack returns such a text) or by its
count (weight 1: only a model that left the law, or split a word otherwise than the tokenizer, makes it). A stack stays
open unless it weighs at least 3 more than the best. Where the best itself weighs more than a twelfth of the replies,
no stack explains the host. So no single odd reply can exclude the true stack, nor prove another.

What blanks, arguments and ids show directly excludes parts before the search: a side with a blank is not stripped,
arguments in another form than a dump's were not dumped, an id `functions.NAME:INDEX` was not replaced.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from kimi_helpers.formats import ModelFormat, format_of_model
from kimi_helpers.profile_choice import Verdict, host_of, judge_stack
from kimi_helpers.reading_search import Encode, encoder_of
from kimi_helpers.readings import count_spelled, most_spelled
from kimi_helpers.replies import Reply
from kimi_helpers.reply_bodies import Transport
from kimi_helpers.reply_sources import SourcedReply
from kimi_helpers.request_terms import Asked, cut_at_limit, read_request
from kimi_helpers.serving_stacks import ServingStack, Side, dump
from kimi_helpers.stack_space import (
    ARGUMENT_RULES,
    FIELD_SIDES,
    ID_RULES,
    WHOLE_TEXT,
    IdRule,
    Strips,
    cores,
    plain_form,
    strip_sets,
)
from kimi_helpers.tool_ids import IdForm, id_form
from kimi_helpers.vocabulary import Vocabulary

WEIGHTS = {
    Verdict.explained: 0,
    Verdict.silent: 0,
    Verdict.unusual: 1,
    Verdict.miscounted: 1,
    Verdict.impossible: 2,
}
FEW_CALLS = 10
# A stack stays open unless it weighs this much more than the best.
MARGIN = 3
NO_STRIPS: Strips = frozenset()
TRANSPORTS: tuple[Transport, ...] = ("json", "sse")
_RULE_OF_FORM: Mapping[IdForm, IdRule] = {"canonical": "sampled", "bare": "bare", "other": "replaced"}


@dataclass(frozen=True)
class Witness:
    """A reply that can speak for or against stacks.

    Attributes:
        sourced: the reply as it was read, with its request.
        reply: of `cut_at_limit`.
        asked: what its request fixes.
        format: of its model.
    """

    sourced: SourcedReply
    reply: Reply
    asked: Asked
    format: ModelFormat

    @property
    def billed(self) -> int | None:
        """The stated `completion_tokens`."""
        return self.reply.usage.completion_tokens if self.reply.usage else None


def witnesses_by_host(
    replies: Iterable[SourcedReply],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    format: ModelFormat | None = None,
) -> dict[str, list[Witness]]:
    """The replies that can be read, by host; failures and replies that spell too many special tokens are left out."""
    found: dict[str, list[Witness]] = {}
    for sourced in replies:
        layout = format or format_of_model(sourced.outcome.model or "")
        if not isinstance(sourced.outcome, Reply) or layout is None:
            continue
        asked = read_request(sourced.request)
        reply = cut_at_limit(sourced.outcome, asked)
        if count_spelled(reply, vocabulary_of(layout)) <= most_spelled(reply):
            found.setdefault(host_of(reply), []).append(Witness(sourced, reply, asked, layout))
    return found


@dataclass
class Judge:
    """Verdicts on stacks, each made once: a reply sees only some of the parts."""

    vocabulary_of: Callable[[ModelFormat], Vocabulary]
    _verdicts: dict[tuple[object, ...], Verdict] = field(default_factory=dict)
    _encoders: dict[str, Encode] = field(default_factory=dict)

    def __call__(self, witness: Witness, stack: ServingStack) -> Verdict:
        """What a reply says of a stack."""
        if is_cut_in_reasoning(witness.reply):
            stack = _keeping_cut_end(stack)
        key = (id(witness), *_parts_seen(witness, stack))
        if key not in self._verdicts:
            vocabulary = self.vocabulary_of(witness.format)
            encode = self._encoders.setdefault(witness.format.name, cache(encoder_of(vocabulary)))
            self._verdicts[key] = judge_stack(witness.reply, vocabulary, witness.format, stack, witness.asked, encode)
        return self._verdicts[key]


def is_cut_in_reasoning(reply: Reply) -> bool:
    """Whether the limit fell inside the reasoning, so that its end was never parsed."""
    return reply.finish_reason == "length" and not reply.content and not reply.tool_calls


def _keeping_cut_end(stack: ServingStack) -> ServingStack:
    """The stack as it treats cut reasoning: a streaming parser strips its end at `</think>`, and none comes."""
    end: Strips = frozenset({"reasoning end"})
    return replace(stack, strips_json=stack.strips_json - end, strips_stream=stack.strips_stream - end)


def _parts_seen(witness: Witness, stack: ServingStack) -> tuple[object, ...]:
    """The parts of a stack that can bear on a reply."""
    reply = witness.reply
    seen: tuple[object, ...] = (stack.blanks, stack.parses_reasoning, stack.cuts_at_call, stack.counts_end)
    seen += (stack.strips(reply.transport, witness.asked.thinking), witness.asked.forced_call and stack.counts_forced)
    return (*seen, stack.arguments, stack.trims_arguments, stack.ids) if reply.tool_calls else seen


@dataclass(frozen=True)
class OpenCore:
    """Parts that stay open together, beside what may be stripped.

    Attributes:
        core: the parts; its strips say nothing.
        weights: transport -> strips -> weight of the replies of that transport against them; a transport without
            replies is left out.
    """

    core: ServingStack
    weights: Mapping[Transport, Mapping[Strips, int]]

    @property
    def least(self) -> int:
        """The weight against the best strips."""
        return sum(min(weights.values()) for weights in self.weights.values())

    def strips(self, transport: Transport, most: int) -> dict[Strips, int]:
        """The strips that weigh at most `most` beside the best of the other transport, lightest first."""
        weights = self.weights[transport]
        elsewhere = self.least - min(weights.values())
        kept = {strips: weight for strips, weight in weights.items() if weight + elsewhere <= most}
        return dict(sorted(kept.items(), key=lambda pair: (pair[1], len(pair[0]))))


@dataclass(frozen=True)
class Inference:
    """What the replies of one host say of its stack.

    Attributes:
        host: its name.
        witnesses: the replies that the inference rests on.
        odd: replies set aside, because their ids are of another form than the host's others.
        open: the parts that stay open, best first; none where no stack explains the host.
        weight: against the best stack.
    """

    host: str
    witnesses: tuple[Witness, ...]
    odd: tuple[Witness, ...]
    open: tuple[OpenCore, ...]
    weight: int

    @property
    def counted(self) -> int:
        """How many replies have a billed count."""
        return sum(witness.billed is not None for witness in self.witnesses)

    def of(self, transport: Transport) -> int:
        """How many replies came in a transport."""
        return sum(witness.reply.transport == transport for witness in self.witnesses)

    @property
    def most(self) -> int:
        """What a stack that stays open can weigh."""
        return self.weight + MARGIN - 1

    def leaves_open(self, stack: ServingStack) -> bool:
        """Whether a stack, in plain form, is among those not told apart."""
        plain = plain_form(stack)
        for each in self.open:
            if replace(plain, strips_json=frozenset(), strips_stream=frozenset()) != each.core:
                continue
            told = {transport: each.weights[transport].get(plain.strips(transport)) for transport in each.weights}
            weights = [weight for weight in told.values() if weight is not None]
            if len(weights) == len(told) and sum(weights) <= self.most:
                return True
        return False

    def stacks(self) -> Iterator[ServingStack]:
        """Every stack that is not told apart, best first within its parts; a transport without replies keeps all."""
        for each in self.open:
            json_strips = each.strips("json", self.most) if "json" in each.weights else {NO_STRIPS: 0}
            sse_strips = each.strips("sse", self.most) if "sse" in each.weights else {NO_STRIPS: 0}
            for whole, first in json_strips.items():
                for stream, second in sse_strips.items():
                    if first + second <= self.most:
                        stack = replace(each.core, strips_json=whole, strips_stream=stream)
                        if plain_form(stack) == stack:
                            yield stack

    @property
    def best(self) -> ServingStack | None:
        """The lightest stack, the plainest of several; None where none explains the host."""
        return min(self.stacks(), key=self._rank, default=None)

    def _rank(self, stack: ServingStack) -> tuple[int, int]:
        """The weight against a stack that is open, and how much it changes."""
        core = replace(stack, strips_json=frozenset(), strips_stream=frozenset())
        each = next(each for each in self.open if each.core == core)
        weight = sum(weights[stack.strips(transport)] for transport, weights in each.weights.items())
        return weight, _changes(core) + len(stack.strips_json) + len(stack.strips_stream)


def infer_stack(host: str, witnesses: Sequence[Witness], judge: Judge) -> Inference:
    """The stacks that explain a host's replies, of all combinations of the parts.

    Args:
        host: its name.
        witnesses: its replies, of `witnesses_by_host`.
        judge: of the vocabularies; share one between the hosts of a batch only while their replies are alive.
    """
    rules, kept = _id_rules(witnesses)
    allowed = allowed_weight(len(kept))
    by_transport: dict[Transport, list[Witness]] = {
        transport: of_it
        for transport in TRANSPORTS
        if (of_it := [witness for witness in kept if witness.reply.transport == transport])
    }
    strips = {
        (transport, only): _strips_left(of_it, only)
        for transport, of_it in by_transport.items()
        for only in (False, True)
    }
    found = []
    for core in cores() if kept else ():
        if core.ids not in rules or not _arguments_allow(kept, core):
            continue
        weights = {
            transport: _weigh(of_it, core, strips[transport, core.strips_thinking_only], judge, allowed + MARGIN - 1)
            for transport, of_it in by_transport.items()
        }
        if all(weights.values()):
            found.append(OpenCore(core, weights))
    weight = min((each.least for each in found), default=0)
    fitting = [each for each in found if each.least <= weight + MARGIN - 1] if weight <= allowed else []
    fitting.sort(key=lambda each: (each.least, _changes(each.core)))
    kept_ids = {id(witness) for witness in kept}
    odd = tuple(witness for witness in witnesses if id(witness) not in kept_ids)
    return Inference(host, tuple(kept), odd, tuple(fitting), weight)


def allowed_weight(replies: int) -> int:
    """What so many replies may weigh against a stack that explains the host."""
    return max(MARGIN - 1, replies // 12)


def _weigh(
    witnesses: Sequence[Witness], core: ServingStack, strips: Sequence[Strips], judge: Judge, most: int
) -> dict[Strips, int]:
    """The weight against each of the strips beside a core; those above `most` are left out."""
    weights: dict[Strips, int] = {}
    for sides in strips:
        stack = replace(core, strips_json=sides, strips_stream=sides)
        if plain_form(stack).strips_json != sides:
            continue
        weight = 0
        for witness in witnesses:
            weight += WEIGHTS[judge(witness, stack)]
            if weight > most:
                break
        else:
            weights[sides] = weight
    return weights


def _changes(stack: ServingStack) -> int:
    """How many parts of a core are not at their defaults."""
    parts = [stack.blanks, stack.cuts_at_call, stack.trims_arguments, stack.arguments != "sampled"]
    parts += [stack.strips_thinking_only, not stack.parses_reasoning, stack.ids != "sampled"]
    parts += [not stack.counts_end, not stack.counts_forced]
    return sum(parts)


def _id_rules(witnesses: Sequence[Witness]) -> tuple[tuple[IdRule, ...], list[Witness]]:
    """The id rules that the calls leave open, and the replies whose ids are of that form.

    The model's own ids are `functions.NAME:INDEX`. It gets a few wrong, so the form of nine in ten calls decides; of
    fewer than ten calls one from which it left out `functions.` may be most, so that all may be as sampled.
    """
    forms = Counter(form for witness in witnesses for form in _forms(witness))
    if not forms:
        return ID_RULES, list(witnesses)
    form, number = forms.most_common(1)[0]
    if number < 0.9 * forms.total():
        return ID_RULES, list(witnesses)
    rule = _RULE_OF_FORM[form]
    rules: tuple[IdRule, ...] = (rule, "sampled") if rule == "bare" and forms.total() < FEW_CALLS else (rule,)
    return rules, [witness for witness in witnesses if set(_forms(witness)) <= {form}]


def ids_of(inference: Inference) -> tuple[int, int]:
    """How many replies have calls, and in how many of them all ids are of the host's form."""
    calls = sum(bool(witness.reply.tool_calls) for witness in inference.witnesses)
    return calls + len(inference.odd), calls


def _forms(witness: Witness) -> list[IdForm]:
    return [id_form(call) for call in witness.reply.tool_calls]


def _strips_left(witnesses: Sequence[Witness], thinking_only: bool) -> list[Strips]:
    """The strips that no blank speaks against."""
    speaking = [witness for witness in witnesses if not (thinking_only and witness.asked.thinking is False)]
    shown = {side for witness in speaking for side in blank_sides(witness.reply)}
    return [strips for strips in strip_sets() if not strips & shown]


def blank_sides(reply: Reply) -> set[Side]:
    """The sides at which a reply has a blank, so that its host does not strip them."""
    reasoning, content = reply.reasoning or "", reply.content or ""
    # with calls the text ends in their section, whatever the content ends in
    last = "" if reply.tool_calls else content or reasoning
    texts = (reasoning[:1], reasoning[-1:], content[:1], content[-1:], (reasoning or content)[:1], last[-1:])
    sides: tuple[Side, ...] = (*FIELD_SIDES, *sorted(WHOLE_TEXT, reverse=True))
    shown = {side for side, character in zip(sides, texts, strict=True) if character.isspace()}
    return shown - {"reasoning end"} if is_cut_in_reasoning(reply) else shown


def _arguments_allow(witnesses: Sequence[Witness], core: ServingStack) -> bool:
    """Whether all arguments can have come from a core's serialiser."""
    texts = [call.arguments for witness in witnesses for call in witness.reply.tool_calls]
    if core.trims_arguments and any(text != text.strip() for text in texts):
        return False
    return core.arguments == "sampled" or all(dump_style_fits(text, core.arguments) for text in texts)


def dump_style_fits(text: str, style: str) -> bool:
    """Whether arguments can have been dumped in a style of `ARGUMENT_RULES`; what is no JSON is not dumped again."""
    if style not in ("compact", "spaced"):
        return style in ARGUMENT_RULES
    try:
        return text == dump(json.loads(text), "compact" if style == "compact" else "spaced")
    except (ValueError, RecursionError):
        return True
