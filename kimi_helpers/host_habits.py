"""What each reply shows of its host by itself: fields, leaks, forms of ids and arguments, counts, evidence."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from kimi_helpers.formats import BEGIN_SECTION, BEGIN_THINK, END_THINK, ModelFormat
from kimi_helpers.host_findings import TRANSPORT_WORDS, Finding, share_finding
from kimi_helpers.reading_search import encoder_of, in_ids
from kimi_helpers.readings import layouts
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.stack_inference import TRANSPORTS, WEIGHTS, Judge, Witness, dump_style_fits
from kimi_helpers.token_evidence import listed_ids
from kimi_helpers.tool_ids import id_form
from kimi_helpers.vocabulary import Vocabulary

TO_END_THINK = "tokens up to and with </think>"


def habit_findings(
    witnesses: Sequence[Witness],
    best: ServingStack | None,
    judge: Judge,
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
) -> list[Finding]:
    """The findings of this module for one host; those that no reply bears on are left out.

    Args:
        witnesses: its replies.
        best: its best stack; None where none explains it.
        judge: of its inference.
        vocabulary_of: the vocabulary of a format.
    """
    calls = [call for witness in witnesses for call in witness.reply.tool_calls]
    found = [
        share_finding("reasoning field", (w.reply.reasoning_field for w in witnesses if w.reply.reasoning_field)),
        share_finding("think leakage", map(_leak, witnesses)),
        share_finding("form of ids", (_FORM_WORDS[id_form(call)] for call in calls)),
        share_finding("form of arguments", (_style(call.arguments) for call in calls)),
        reasoning_law(witnesses, best, judge, vocabulary_of),
        _stream_against_whole(witnesses),
        share_finding("logprobs", _logprobs(witnesses, vocabulary_of)),
        share_finding("token ids", _engine_ids(witnesses)),
    ]
    return [finding for finding in found if finding.n]


_FORM_WORDS = {"canonical": "functions.NAME:INDEX", "bare": "NAME:INDEX", "other": "of the host's own"}


def _leak(witness: Witness) -> str:
    content = witness.reply.content or ""
    marks = {"think tokens": (BEGIN_THINK, END_THINK), "tool markup": (BEGIN_SECTION,)}
    leaked = [what for what, spelled in marks.items() if any(mark in content for mark in spelled)]
    return f"{' and '.join(leaked)} in the content" if leaked else "none"


def _style(text: str) -> str:
    styles = [style for style in ("compact", "spaced") if text == text.strip() and dump_style_fits(text, style)]
    return " or ".join(styles) or "neither compact nor spaced"


def reasoning_law(
    witnesses: Sequence[Witness],
    best: ServingStack | None,
    judge: Judge,
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
) -> Finding:
    """What `reasoning_tokens` counts, on whole replies with reasoning whose billed count the best stack explains."""
    told = []
    for witness in witnesses:
        usage = witness.reply.usage
        is_plain = witness.reply.reasoning and witness.reply.finish_reason != "length" and usage is not None
        if best is None or not is_plain or usage is None or WEIGHTS[judge(witness, best)]:
            continue
        if usage.reasoning_tokens is not None:
            told.append(_law(witness, usage.reasoning_tokens, best, vocabulary_of(witness.format)))
    return share_finding("reasoning_tokens", told)


def _law(witness: Witness, stated: int, stack: ServingStack, vocabulary: Vocabulary) -> str:
    if stated == 0:
        return "always 0"
    encode, billed = encoder_of(vocabulary), witness.billed or 0
    for words, reasoned in ((TO_END_THINK, stated), ("tokens of the text alone", stated + 1)):
        for layout in layouts(witness.reply, vocabulary, witness.format, stack, witness.asked):
            if next(in_ids(layout, vocabulary, encode).fitting(billed, reasoned), None) is not None:
                return words
    return "neither of the laws known"


def _stream_against_whole(witnesses: Sequence[Witness]) -> Finding:
    """Whether fields and finish reasons are the same in both transports; strips are findings of their own."""
    groups = {t: [w.reply for w in witnesses if w.reply.transport == t] for t in TRANSPORTS}
    if not all(groups.values()):
        return Finding("stream and whole", (), 0, 0)
    shown: dict[str, list[frozenset[str]]] = {
        "reasoning field": [
            frozenset(r.reasoning_field for r in group if r.reasoning_field) for group in groups.values()
        ],
        "native finish reasons": [
            frozenset(n for r in group for n in r.native_finish_reasons) for group in groups.values()
        ],
    }
    differing = [
        f"{name}: {', '.join(sorted(whole)) or 'none'} in {TRANSPORT_WORDS['json']},"
        f" {', '.join(sorted(stream)) or 'none'} in {TRANSPORT_WORDS['sse']}"
        for name, (whole, stream) in shown.items()
        if whole != stream
    ]
    fewest = min(map(len, groups.values()))
    return Finding("stream and whole", ("; ".join(differing) or "the same fields",), fewest, fewest)


def _logprobs(witnesses: Sequence[Witness], vocabulary_of: Callable[[ModelFormat], Vocabulary]) -> Iterator[str]:
    """Of the replies whose request asked for them."""
    for witness in _asked_for(witnesses, "logprobs"):
        reply = witness.reply
        listed = listed_ids(reply, vocabulary_of(witness.format))
        if not reply.logprobs:
            yield "not returned"
        elif not listed:
            yield "returned without usable bytes"
        elif witness.billed is not None and len(listed) >= witness.billed - 1:
            yield "bytes of every token"
        else:
            yield "bytes of some tokens"


def _engine_ids(witnesses: Sequence[Witness]) -> Iterator[str]:
    for witness in _asked_for(witnesses, "return_token_ids"):
        yield "returned" if witness.reply.engine_token_ids is not None else "not returned"


def _asked_for(witnesses: Sequence[Witness], field: str) -> Iterator[Witness]:
    for witness in witnesses:
        request: Mapping[str, object] = witness.sourced.request or {}
        if request.get(field) is True:
            yield witness
