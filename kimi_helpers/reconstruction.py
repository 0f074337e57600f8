"""A parsed reply -> token ids, with a grade that says how well the ids are proven.

The readings of a reply follow from the token law of its model's format and from its host's serving stack, run
backwards (`readings.py`); the billed count chooses (`reading_search.py`). A count is a necessary test, never a proof
by itself: a host that changes the text can fit it by chance. So ids are called exact only under a profile of the host,
where every serving stack that the profile leaves open gives the same one reading, and up to other splits of the same
text into as many tokens, which no count can show.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kimi_helpers.count_doubts import doubt, lost_bytes
from kimi_helpers.formats import ModelFormat
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reading_search import (
    ID_BYTES,
    MOST_READINGS,
    Choices,
    Encode,
    Ids,
    Reading,
    encoder_of,
    in_ids,
    packed,
    source_pieces,
    unpacked,
)
from kimi_helpers.readings import EndToken, Layout, Slot, count_spelled, layouts, most_spelled
from kimi_helpers.replies import Failure, Reply
from kimi_helpers.request_terms import Asked, cut_at_limit
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.token_evidence import Split, completed_ids, covers_all, listed_ids, split_of, with_content
from kimi_helpers.vocabulary import Vocabulary

# Without a profile the text is taken as returned, and never called exact.
AS_RETURNED = (
    ServingStack("as returned", seen="no host: the plainest hypothesis"),
    ServingStack("as returned, end not counted", seen="no host: the other counter", counts_end=False),
)


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
class Reconstruction:
    """The token ids of a reply and what they are worth.

    Attributes:
        data: packed completion ids; empty where the grade is `unresolved` or `failed`.
        grade: how well the ids are proven.
        reason: one sentence on why.
        candidates: the distinct readings that fit the billed count, best first, at most `MOST_READINGS`; where
            nothing fits or no count came, the plain readings.
        reconstructed_tokens: the count that the first of `candidates` predicts, to stand beside the billed one.
        stack: the serving stack behind the ids; None where no stack explains the reply.
        split: how ids that the host returned split their text; None where they rest on a count.
    """

    data: bytes
    grade: Grade
    reason: str
    candidates: tuple[Reading, ...] = ()
    reconstructed_tokens: int | None = None
    stack: str | None = None
    split: Split | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Completion ids, shape [n]."""
        return tuple(unpacked(self.data).tolist())

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """Shape [n], 1 on what the model sampled. The prompt is not part of it, so all ones."""
        return (1,) * (len(self.data) // ID_BYTES)


@dataclass(frozen=True)
class Possibility:
    """A layout of a reply under one of the serving stacks that its profile leaves open."""

    stack: ServingStack
    layout: Layout


@dataclass(frozen=True)
class _Option:
    """A possibility in token ids."""

    stack: ServingStack
    choices: Choices


def reconstruct(
    outcome: Reply | Failure,
    vocabulary: Vocabulary,
    format: ModelFormat,
    profile: ProviderProfile | None = None,
    asked: Asked | None = None,
) -> Reconstruction:
    """Token ids and grade of one reply.

    Evidence is used best first: ids the engine returned, the bytes of every token, the billed count. The first
    two must spell the text of the reply. Without a profile no count makes a reply exact.

    Args:
        outcome: a parsed reply, or why there is none.
        vocabulary: whose ids.
        format: the layout of its model.
        profile: what is known of its host.
        asked: what the request fixes, of `read_request`.
    """
    if isinstance(outcome, Failure):
        return failed(outcome)
    asked = asked or Asked()
    reply = cut_at_limit(outcome, asked)
    possible = possibilities(reply, vocabulary, format, profile, asked)
    return settle(reply, possible, vocabulary, format, profile, cache(encoder_of(vocabulary)))


def failed(failure: Failure) -> Reconstruction:
    """What there is to say of an exchange that gave no reply."""
    return Reconstruction(b"", Grade.failed, f"{failure.kind.value}: {failure.message}")


def possibilities(
    reply: Reply, vocabulary: Vocabulary, format: ModelFormat, profile: ProviderProfile | None, asked: Asked
) -> list[Possibility]:
    """All that the stacks left open by a profile can have returned as a reply of `cut_at_limit`."""
    return [
        Possibility(stack, layout)
        for stack in (profile.stacks if profile else AS_RETURNED)
        for layout in layouts(reply, vocabulary, format, stack, asked)
    ]


def settle(
    reply: Reply,
    possible: Sequence[Possibility],
    vocabulary: Vocabulary,
    format: ModelFormat,
    profile: ProviderProfile | None,
    encode: Encode,
) -> Reconstruction:
    """`reconstruct` from the possibilities on.

    Args:
        reply: of `cut_at_limit`.
        encode: ordinary text to packed ids, the same as `encoder_of(vocabulary)`; asked for `texts_to_encode` only.
    """
    if not possible:
        return Reconstruction(b"", Grade.unresolved, _why_no_reading(reply, vocabulary, format, profile))
    options = [_Option(each.stack, in_ids(each.layout, vocabulary, encode)) for each in possible]
    tried = [each.layout for each in possible]
    if reply.engine_token_ids is not None:
        return _from_engine(reply.engine_token_ids, options, tried, vocabulary)
    # some engines write U+FFFD where a token ends inside a character, so bytes prove nothing where the text holds it
    listed = [] if lost_bytes(reply) else listed_ids(reply, vocabulary)
    complete = completed_ids(listed, tried, vocabulary) if listed else None
    if complete and covers_all(complete, reply, tried, vocabulary):
        reason = "the host returned the bytes of every token, and they spell the reply" + _filled(listed, complete)
        return _known(complete, Grade.logprob_bytes, reason, options, vocabulary)
    if listed:
        by_bytes = [(option.stack, with_content(option.choices, listed, vocabulary)) for option in options]
        if known := [_Option(stack, choices) for stack, choices in by_bytes if choices]:
            return _from_count(reply, known, vocabulary, profile, "the content's ids come from its tokens' bytes; ")
    return _from_count(reply, options, vocabulary, profile, "")


def texts_to_encode(possible: Sequence[Possibility]) -> Iterator[str]:
    """The texts that `settle` will ask its encoder for; some come more than once."""
    for each in possible:
        for part in each.layout.parts:
            if isinstance(part, Slot):
                for source in part.sources:
                    yield from source_pieces(source, part)


def _why_no_reading(reply: Reply, vocabulary: Vocabulary, format: ModelFormat, profile: ProviderProfile | None) -> str:
    if (spelled := count_spelled(reply, vocabulary)) > most_spelled(reply):
        return f"the text spells {spelled} special tokens, too many readings for a count to choose"
    if reply.reasoning and not format.thinks:
        return f"the reply holds reasoning, but {format.name} does not think"
    names = " or ".join(f"`{stack.name}`" for stack in (profile.stacks if profile else AS_RETURNED)[:3])
    return f"no host with the serving stack {names} returns such a text to such a request"


def _plain(options: Sequence[_Option]) -> tuple[Reading, ...]:
    """The distinct plain readings, at most `MOST_READINGS`: very many of a long text would not fit in memory."""
    plain: dict[Reading, None] = {}
    for option in options:
        plain[option.choices.plain()] = None
        if len(plain) >= MOST_READINGS:
            break
    return tuple(plain)


def _graded(
    data: bytes, grade: Grade, reason: str, readings: Sequence[Reading], stack: str | None = None
) -> Reconstruction:
    return Reconstruction(data, grade, reason, tuple(readings), readings[0].billed, stack)


def _known(
    ids: Sequence[int], grade: Grade, reason: str, options: Sequence[_Option], vocabulary: Vocabulary
) -> Reconstruction:
    """Ids that the host told, and how they split their text."""
    plain, data = _plain(options), packed(ids)
    is_own = any(reading.data == data for reading in plain)
    return replace(_graded(data, grade, reason, plain), split="canonical" if is_own else split_of(ids, vocabulary))


def _filled(ids: Sequence[int], complete: Sequence[int]) -> str:
    return "" if len(complete) == len(ids) else "; they lack the end token, which the law adds"


def _from_engine(
    ids: Sequence[int], options: Sequence[_Option], tried: Sequence[Layout], vocabulary: Vocabulary
) -> Reconstruction:
    plain = _plain(options)
    try:
        complete = completed_ids(ids, tried, vocabulary)
    except ValueError as error:
        return _graded(b"", Grade.unresolved, f"the engine's ids are not of this vocabulary: {error}", plain)
    if complete is None:
        return _graded(b"", Grade.unresolved, "the engine's ids spell another text than the reply", plain)
    reason = "the engine returned the ids, and they spell the reply" + _filled(ids, complete)
    return _known(complete, Grade.engine_ids, reason, options, vocabulary)


def _from_count(
    reply: Reply,
    options: Sequence[_Option],
    vocabulary: Vocabulary,
    profile: ProviderProfile | None,
    known: str,
) -> Reconstruction:
    billed = reply.usage.completion_tokens if reply.usage else None
    if billed is None:
        plain = _plain(options)
        return _graded(plain[0].data, Grade.unverified, "the host stated no count to check the text against", plain)
    fitting = _fitting(reply, options, billed)
    if not fitting:
        plain = _plain(options)
        near = sorted({reading.billed for reading in plain}, key=lambda count: abs(count - billed))[:3]
        reason = f"{billed} tokens were billed, but the text makes {' or '.join(map(str, near))}"
        return _graded(b"", Grade.unresolved, f"{reason}{_named(profile)}", plain)
    ranked = list(fitting)
    if len(ranked) > 1:
        ranked.sort(key=lambda reading: _borders_inside(reading, reply, vocabulary) or 0)
    best = ranked[0]
    option = fitting[best]
    fit = f"{known}{_fit(billed, best.end_token)}"
    tried = [each.choices for each in options]
    if against := doubt(ranked, option.choices, tried, reply, billed, profile, vocabulary):
        return _graded(best.data, Grade.exact_ambiguous, f"{fit}, but {against}", ranked, option.stack.name)
    reason = explain_fit(billed, best.end_token, profile, _borders_inside(best, reply, vocabulary) or 0)
    return _graded(best.data, Grade.exact_unique, f"{known}{reason}", ranked, option.stack.name)


def explain_fit(billed: int, end_token: EndToken, profile: ProviderProfile | None, borders: int) -> str:
    """The reason of an exact grade that rests on the count.

    Args:
        billed: the count.
        end_token: as `Reading`.
        profile: of the host.
        borders: how many borders of the stream's chunks fall inside the tokens.
    """
    weak = f"; {borders} borders of the stream's chunks fall inside its tokens" if borders else ""
    return f"{_fit(billed, end_token)}{_named(profile)}{weak}"


def _fit(billed: int, end_token: EndToken) -> str:
    return f"the text makes the {billed} billed tokens (end token {end_token})"


def _named(profile: ProviderProfile | None) -> str:
    if profile is None:
        return ""
    rests = "" if profile.replies is None else f", resting on {profile.replies} replies"
    names = " or ".join(f"`{stack.name}`" for stack in profile.stacks[:3])
    more = f" or {len(profile.stacks) - 3} more" if len(profile.stacks) > 3 else ""
    return f" under the profile of {profile.provider} ({names}{more}{rests})"


def _fitting(reply: Reply, options: Sequence[_Option], billed: int) -> dict[Reading, _Option]:
    """Distinct readings that make the count, and the reasoning count where the stack counts so -> where they come from.

    Readings with the same ids are one, whatever stack or counting rule they come from.
    """
    fitting: dict[bytes, tuple[Reading, _Option]] = {}
    stated = reply.usage.reasoning_tokens if reply.usage else None
    for option in sorted(options, key=lambda option: not option.choices.layout.usual):
        second = option.stack.counts_reasoning and reply.reasoning
        for reading in option.choices.fitting(billed, stated if second else None):
            fitting.setdefault(reading.data, (reading, option))
            if len(fitting) >= MOST_READINGS:
                return dict(fitting.values())
    return dict(fitting.values())


def _borders_inside(reading: Reading, reply: Reply, vocabulary: Vocabulary) -> int | None:
    """How many borders of a stream's chunks fall inside tokens of a reading; None where they cannot be compared."""
    if not reply.chunk_texts:
        return None
    ids = np.array([id for id in reading.token_ids.tolist() if id not in vocabulary.special_ids], np.int32)
    chunks = [text.encode("utf-8", errors="replace") for text in reply.chunk_texts]
    if vocabulary.decode_bytes(ids.tolist()) != b"".join(chunks):
        return None
    return borders_inside(ids, np.array([len(chunk) for chunk in chunks]).cumsum(), vocabulary)


def borders_inside(ids: Ids, ends: NDArray[np.int64], vocabulary: Vocabulary) -> int:
    """How many borders of a stream's chunks fall inside tokens.

    Weak evidence: hosts hold text back and merge tokens, but few cut a token in two.

    Args:
        ids: ordinary tokens that spell the stream's text, shape [n].
        ends: of its chunks, in bytes from the start, shape [chunks].
    """
    token_ends = vocabulary.token_lengths[ids].cumsum()
    inside = np.ones(token_ends[-1] + 1 if len(ids) else 1, np.bool_)
    inside[0] = False
    inside[token_ends] = False
    return int(inside[ends].sum())
