"""A parsed reply -> token ids, with a grade that says how well the ids are proven.

The ids follow from the text by the token law of the model's format (`formats.py`). What the text leaves open
(was thinking on, was `</think>` sampled before a tool section, is a spelled special token one) gives several
candidates; the billed count chooses. A count is a necessary test, never a proof by itself: a host that changes
the text can fit it by chance. So ids are called exact only under a profile that fixes what the host does, and up
to other splits of the same text into as many tokens, which no count can show.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any, Literal

from kimi_helpers.formats import (
    BEGIN_THINK,
    END_THINK,
    END_TURN,
    ModelFormat,
    Segment,
    Special,
    as_text,
    encode_segments,
)
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.replies import Failure, Reply
from kimi_helpers.vocabulary import Vocabulary

MOST_SPELLED = 6


EndToken = Literal["counted", "not counted", "absent"]


class Grade(StrEnum):
    """How well the ids of a reply are proven, best first."""

    engine_ids = "engine_ids"
    logprob_bytes = "logprob_bytes"
    exact_unique = "exact_unique"
    exact_ambiguous = "exact_ambiguous"
    unverified = "unverified"
    unresolved = "unresolved"
    failed = "failed"

    @property
    def is_exact(self) -> bool:
        """Whether rows of this grade may be trained on as the model's own tokens."""
        return self in (Grade.engine_ids, Grade.logprob_bytes, Grade.exact_unique)


@dataclass(frozen=True)
class Candidate:
    """One reading of a reply.

    Attributes:
        token_ids: what the model would have sampled, end-of-turn token included where it ended.
        text: the same, special tokens spelled.
        billed: the `completion_tokens` that the host would state for it.
        end_token: whether the end-of-turn token was counted; `absent` where the reply was cut before it.
    """

    token_ids: tuple[int, ...]
    text: str
    billed: int
    end_token: EndToken


@dataclass(frozen=True)
class Reconstruction:
    """The token ids of a reply and what they are worth.

    Attributes:
        token_ids: completion ids, shape [n]; empty where the grade is `unresolved` or `failed`.
        loss_mask: shape [n], 1 on what the model sampled. The prompt is not part of it, so all ones.
        grade: how well the ids are proven.
        reason: one sentence on why.
        candidates: the readings that fit the billed count (all readings where nothing fits or no count came).
        reconstructed_tokens: the count that the first of `candidates` predicts, to stand beside the billed one.
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    grade: Grade
    reason: str
    candidates: tuple[Candidate, ...] = ()
    reconstructed_tokens: int | None = None


def thinking_asked(request: Mapping[str, Any] | None) -> bool | None:
    """Whether a request leaves thinking on, as OpenRouter, Moonshot, vLLM and SGLang name the switch.

    None where there is no request. A request that says nothing leaves it on.
    """
    if request is None:
        return None
    reasoning, moonshot, template = (
        value if isinstance(value := request.get(name), Mapping) else {}
        for name in ("reasoning", "thinking", "chat_template_kwargs")
    )
    switches = (
        reasoning.get("enabled"),
        template.get("thinking"),
        moonshot.get("type") != "disabled",
        "none" not in (reasoning.get("effort"), request.get("reasoning_effort")),
    )
    return False not in switches


def _split_specials(text: str, vocabulary: Vocabulary) -> list[Segment]:
    """A text cut at the spellings of named special tokens."""
    parts: list[Segment] = []
    position = 0
    for match in vocabulary.spelling.finditer(text):
        parts += [text[position : match.start()], Special(match.group())]
        position = match.end()
    return [*parts, text[position:]]


def _readings(texts: Sequence[str], vocabulary: Vocabulary) -> Iterator[list[list[Segment]]]:
    """Every reading of the special tokens that texts spell: each as the token, or as ordinary text.

    A reading is a list of segments a text. Nothing is read where more than `MOST_SPELLED` are spelled: so many
    readings would let a count fit by chance.
    """
    parts = [_split_specials(text, vocabulary) for text in texts]
    spelled = sum(isinstance(part, Special) for text in parts for part in text)
    if spelled > MOST_SPELLED:
        return
    for choice in product((True, False), repeat=spelled):
        is_token = iter(choice)
        yield [[part if isinstance(part, str) or next(is_token) else part.text for part in text] for text in parts]


def _layouts(
    reply: Reply, vocabulary: Vocabulary, format: ModelFormat, thinking: bool | None
) -> Iterator[list[Segment]]:
    """The ways the token law can have laid out the reply's text, without the end-of-turn token."""
    texts = [reply.reasoning or "", reply.content or "", *(call.arguments for call in reply.tool_calls)]
    for reasoning, content, *arguments in _readings(texts, vocabulary):
        calls = [(call.id, text) for call, text in zip(reply.tool_calls, arguments, strict=True)]
        for thinks in _thinking_options(reply, format, thinking):
            if thinks and not reply.reasoning and Special(END_THINK) in content:
                layouts = [_left_in_content(content, calls, format)]
            else:
                layouts = [
                    format.completion_segments(reasoning, content, calls, thinks, closes, ends=False)
                    for closes in (_closing_options(reply) if thinks else (True,))
                ]
            for layout in layouts:
                # a length cut can fall before the tokens that close the last call and the section
                for missing in (2, 1, 0) if calls and reply.finish_reason == "length" else (0,):
                    yield layout[: len(layout) - missing]


def _left_in_content(
    content: list[Segment], calls: Sequence[tuple[str, list[Segment]]], format: ModelFormat
) -> list[Segment]:
    """The layout where no reasoning parser ran: the think section stands in the content with its own tokens."""
    if format.opening_think == "model" and content[:2] == ["", Special(BEGIN_THINK)]:
        content = content[2:]  # the law writes this token itself
    return format.completion_segments([], content, calls, closes_thinking=False, ends=False)


def _closing_options(reply: Reply) -> tuple[bool, ...]:
    """Whether `</think>` was sampled: open where a tool section or a length cut can have come before it."""
    cut = reply.finish_reason == "length" and not (reply.tool_calls or (reply.reasoning and reply.content))
    called = reply.tool_calls and not reply.content
    return (True, False) if cut or called else (True,)


def _thinking_options(reply: Reply, format: ModelFormat, asked: bool | None) -> list[bool]:
    """Whether the model thought: told by the format, the request, or the reply; else both."""
    if format.opening_think == "model":
        return [True]
    if format.opening_think == "nobody" or asked is False:
        return [] if reply.reasoning else [False]
    return [True] if asked or reply.reasoning else [True, False]


def read_candidates(
    reply: Reply,
    vocabulary: Vocabulary,
    format: ModelFormat,
    profile: ProviderProfile | None = None,
    thinking: bool | None = None,
) -> list[Candidate]:
    """All readings of a reply's text as returned, plainest first, each distinct.

    Args:
        reply: a parsed reply.
        vocabulary: whose ids.
        format: the layout of its model.
        profile: fixes the counting rule; without one both are read.
        thinking: whether the request left thinking on; None where that is not known.
    """
    end = vocabulary.special_id(END_TURN)
    candidates: dict[tuple[tuple[int, ...], int], Candidate] = {}
    for body in _layouts(reply, vocabulary, format, thinking):
        body_ids, text = encode_segments(vocabulary, body), as_text(body)
        for end_token in _end_options(reply, profile):
            ids = tuple(body_ids) if end_token == "absent" else (*body_ids, end)
            spelled = text if end_token == "absent" else text + END_TURN
            billed = len(ids) - (end_token == "not counted")
            candidates.setdefault((ids, billed), Candidate(ids, spelled, billed, end_token))
    return list(candidates.values())


def _end_options(reply: Reply, profile: ProviderProfile | None) -> list[EndToken]:
    rules: list[EndToken] = ["counted", "not counted"]
    if profile:
        rules.remove("not counted" if profile.end_token_counted else "counted")
    if reply.finish_reason != "length":
        return rules
    # of a cut reply the end token can only be the last token that was counted
    return ["absent", *(rule for rule in rules if rule == "counted")]


def _lost_bytes(reply: Reply) -> str:
    texts = [reply.reasoning or "", reply.content or ""]
    texts += [text for call in reply.tool_calls for text in (call.id, call.arguments)]
    if any(char == "\ufffd" or "\ud800" <= char <= "\udfff" for text in texts for char in text):
        return "the text holds U+FFFD or half a surrogate pair, which stand for bytes that are lost"
    return ""


def reconstruct(
    outcome: Reply | Failure,
    vocabulary: Vocabulary,
    format: ModelFormat,
    profile: ProviderProfile | None = None,
    thinking: bool | None = None,
) -> Reconstruction:
    """Token ids and grade of one reply; arguments as `read_candidates`.

    Evidence is used best first: ids the engine returned, the bytes of every token, the billed count. The first
    two must spell the text of the reply. Without a profile no count makes a reply exact.
    """
    if isinstance(outcome, Failure):
        return Reconstruction((), (), Grade.failed, f"{outcome.kind}: {outcome.message}")
    candidates = read_candidates(outcome, vocabulary, format, profile, thinking)
    if not candidates:
        return Reconstruction((), (), Grade.unresolved, _why_no_reading(outcome, format))
    if outcome.engine_token_ids is not None:
        return _from_engine(outcome.engine_token_ids, candidates, vocabulary)
    return _from_logprobs(outcome, candidates, vocabulary) or _from_count(outcome, candidates, profile)


def _why_no_reading(reply: Reply, format: ModelFormat) -> str:
    if reply.reasoning and not format.thinks:
        return f"the reply holds reasoning, but {format.name} does not think"
    if reply.reasoning:
        return "the reply holds reasoning, but the request switched thinking off"
    return f"the text spells more than {MOST_SPELLED} special tokens, too many readings for a count to choose"


def _graded(ids: Sequence[int], grade: Grade, reason: str, candidates: Sequence[Candidate]) -> Reconstruction:
    return Reconstruction(tuple(ids), (1,) * len(ids), grade, reason, tuple(candidates), candidates[0].billed)


def _completed(ids: Sequence[int], candidates: Sequence[Candidate], vocabulary: Vocabulary) -> list[int] | None:
    """`ids`, ended by the end-of-turn token where they lack it, if they spell one of the readings; else None."""
    text = vocabulary.decode(ids)
    for candidate in candidates:
        if text == candidate.text:
            return list(ids)
        if candidate.end_token != "absent" and text + END_TURN == candidate.text:
            return [*ids, candidate.token_ids[-1]]
    return None


def _from_engine(ids: Sequence[int], candidates: Sequence[Candidate], vocabulary: Vocabulary) -> Reconstruction:
    try:
        complete = _completed(ids, candidates, vocabulary)
    except ValueError as error:
        return _graded((), Grade.unresolved, f"the engine's ids are not of this vocabulary: {error}", candidates)
    if complete is None:
        return _graded((), Grade.unresolved, "the engine's ids spell another text than the reply", candidates)
    reason = "the engine returned the ids, and they spell the reply" + _filled(ids, complete)
    return _graded(complete, Grade.engine_ids, reason, candidates)


def _filled(ids: Sequence[int], complete: Sequence[int]) -> str:
    return "" if len(complete) == len(ids) else "; they lack the end token, which the law adds"


def _from_logprobs(reply: Reply, candidates: Sequence[Candidate], vocabulary: Vocabulary) -> Reconstruction | None:
    """Ids from the bytes of each token, where all are there and together cover the whole reply.

    Some engines write U+FFFD where a token ends inside a character, so bytes prove nothing where the text holds it.
    """
    if not reply.logprobs or _lost_bytes(reply):
        return None
    ids = [None if entry.data is None else vocabulary.id_of_bytes(entry.data) for entry in reply.logprobs]
    known = [id for id in ids if id is not None]
    if len(known) < len(ids) or (complete := _completed(known, candidates, vocabulary)) is None:
        return None
    reason = "the host returned the bytes of every token, and they spell the reply" + _filled(known, complete)
    return _graded(complete, Grade.logprob_bytes, reason, candidates)


def _from_count(reply: Reply, candidates: Sequence[Candidate], profile: ProviderProfile | None) -> Reconstruction:
    billed = reply.usage.completion_tokens if reply.usage else None
    first = candidates[0].token_ids
    if billed is None:
        return _graded(first, Grade.unverified, "the host stated no count to check the text against", candidates)
    fitting = [candidate for candidate in candidates if candidate.billed == billed]
    if not fitting:
        near = sorted({candidate.billed for candidate in candidates}, key=lambda count: abs(count - billed))
        reason = f"{billed} tokens were billed, but the text as returned makes {' or '.join(map(str, near[:3]))}"
        return _graded((), Grade.unresolved, reason, candidates)
    best = fitting[0]
    fit = f"the text as returned makes the {billed} billed tokens (end token {best.end_token})"
    shorter = reply.finish_reason == "length" and any(candidate.billed < billed for candidate in candidates)
    against = _why_not_exact(fitting, profile, _lost_bytes(reply), shorter)
    if against:
        return _graded(best.token_ids, Grade.exact_ambiguous, f"{fit}, but {against}", fitting)
    return _graded(best.token_ids, Grade.exact_unique, f"{fit}, as the host's profile says", fitting)


def _why_not_exact(
    fitting: Sequence[Candidate], profile: ProviderProfile | None, lost_bytes: str, shorter: bool
) -> str:
    """What speaks against calling a fitting reading exact; empty where nothing does."""
    if (sequences := len({candidate.token_ids for candidate in fitting})) > 1:
        return f"so do {sequences - 1} other readings of it"
    if shorter:
        # hosts drop half a character, and a call that is not complete
        return "the reply was cut, and a shorter reading leaves room for tokens whose text was dropped"
    return lost_bytes or ("" if profile else "no profile says that the host leaves text unchanged")
