"""Replies that have one plain reading, found and graded many at a time, in columns.

Most replies are a text of reasoning and one of content that their host returned as the model wrote them. All of them
that share a host, a model and the terms of their request have the same layout, in which only the texts differ. So
`possibilities`, which reads a single reply, is asked once a group, and what is left is to encode and to count. Whatever
is not plain in this sense, or does not make its count, is left to the functions of single replies.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kimi_helpers.count_doubts import LOST_BYTES, weak_profile
from kimi_helpers.formats import END_THINK, ModelFormat, Special
from kimi_helpers.graded_rows import prompt_of
from kimi_helpers.graded_tables import id_lists, table_of
from kimi_helpers.profile_choice import host_of
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.readings import Slot
from kimi_helpers.reconstruction import Grade, Possibility, borders_inside, explain_fit, possibilities
from kimi_helpers.replies import Reply
from kimi_helpers.reply_tables import json_object, sourced_rows
from kimi_helpers.request_terms import read_request
from kimi_helpers.vocabulary import Vocabulary

Request = Mapping[str, Any] | None

_TEXTS = ("reasoning", "content")
_CHECKED = ("prompt_tokens", "reasoning_tokens", "chunk_lengths")
_AS_STATED = ("source", "provider", "model", "transport", "generation_id", "finish_reason", "completion_tokens")


@dataclass(frozen=True, eq=False)
class PlainGroup:
    """Replies that have the same plain layout.

    Attributes:
        places: in their table, shape [replies].
        rows: what else a graded row needs of it, in columns of `REPLY_COLUMNS`.
        texts: what the model sampled as text, in UTF-8: for each reply its reasoning, its content, or both.
        requests: those that asked for them, where they were kept.
        first: one of them.
        possibility: the stack and the layout, with the texts of `first`.
        format: of their model.
        profile: of their host.
        vocabulary: whose ids.
    """

    places: NDArray[np.int64]
    rows: pa.Table
    texts: Sequence[Sequence[bytes]]
    requests: Sequence[Request]
    first: Reply
    possibility: Possibility
    format: ModelFormat
    profile: ProviderProfile
    vocabulary: Vocabulary

    def only(self, chosen: NDArray[np.bool_]) -> "PlainGroup":
        """Some of the replies; shape [replies]."""
        if chosen.all():
            return self
        return replace(
            self,
            places=self.places[chosen],
            rows=self.rows.filter(pa.array(chosen)),
            texts=list(compress(self.texts, chosen)),
            requests=list(compress(self.requests, chosen)),
        )


def plain_groups(
    replies: pa.Table,
    format_of: Callable[[str | None], ModelFormat | None],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    profiles: Mapping[str, ProviderProfile],
) -> list[PlainGroup]:
    """The replies of a table that can be graded by `grade_group`, by what their layout depends on.

    Args:
        replies: the columns of `REPLY_COLUMNS`.
        format_of: the layout of a model by its slug.
        vocabulary_of: the vocabulary of a format.
        profiles: by host.
    """
    requests = _requests(replies.column("request"))
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, key in zip(*_terms(replies, requests), strict=True):
        alike.setdefault(key, []).append(place)
    texts = {name: pc.fill_null(replies.column(name).cast(pa.binary()), b"").to_pylist() for name in _TEXTS}
    others = replies.select([*_AS_STATED, *_CHECKED])
    marked: dict[Vocabulary, NDArray[np.bool_]] = {}
    groups = []
    for (model, asked, *_), of_key in alike.items():
        format = format_of(model)
        if format is None:
            continue
        vocabulary = vocabulary_of(format)
        if vocabulary not in marked:
            marked[vocabulary] = np.logical_or(*(_is_marked(replies.column(name), vocabulary) for name in _TEXTS))
        places = np.array(of_key)[~marked[vocabulary][of_key]]
        first = _reply(replies, places[0]) if len(places) else None
        profile = profiles.get(host_of(first)) if first else None
        if first is None or profile is None or weak_profile(profile):
            continue
        possible = possibilities(first, vocabulary, format, profile, asked)
        if len(possible) == 1 and _is_plain(possible[0], first):
            fields = [part.kind for part in possible[0].layout.parts if isinstance(part, Slot)]
            of_group = list(zip(*([texts[name][place] for place in places] for name in fields), strict=True))
            asking = [requests[place] for place in places]
            rows = others.take(places)
            groups.append(PlainGroup(places, rows, of_group, asking, first, possible[0], format, profile, vocabulary))
    return groups


def _requests(column: pa.ChunkedArray) -> list[Request]:
    if column.null_count == len(column):
        return [None] * len(column)
    return [json_object(data) for data in column.to_pylist()]


def _terms(replies: pa.Table, requests: Sequence[Request]) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Places of answers that were not cut, and of each all that its layout depends on but its texts."""
    has_texts = (pc.greater(pc.fill_null(pc.binary_length(replies.column(name)), 0), 0) for name in _TEXTS)
    columns = [replies.column(name) for name in ("completion_tokens", "model", "provider", "transport")]
    columns += [replies.column("finish_reason"), *has_texts]
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    answers = pc.and_(pc.is_null(replies.column("body")), pc.is_null(replies.column("tool_calls"))).to_numpy()
    places, terms = [], []
    for place in np.flatnonzero(answers).tolist():
        billed, model, provider, transport, finish_reason, *rest = values[place]
        asked = read_request(requests[place])
        if billed is not None and billed != asked.limit and finish_reason != "length":
            places.append(place)
            terms.append(
                (model, replace(asked, limit=None, earlier_calls=0), provider, transport, finish_reason, *rest)
            )
    return places, terms


def _reply(replies: pa.Table, place: int) -> Reply:
    outcome = next(sourced_rows(replies.slice(place, 1))).outcome
    if not isinstance(outcome, Reply):
        raise TypeError("a row without a body holds a reply")
    return outcome


def _is_plain(possibility: Possibility, reply: Reply) -> bool:
    """Whether the stack returns every text as it is, so that it would return any other one so, and bills all of it."""
    stack, layout = possibility.stack, possibility.layout
    if stack.blanks or stack.strips(reply.transport) or layout.end_token == "absent" or not layout.usual:
        return False
    texts = {"reasoning": reply.reasoning or "", "content": reply.content or ""}
    slots = [part for part in layout.parts if isinstance(part, Slot)]
    return not layout.uncounted and all(slot.complete and slot.sources == (texts.get(slot.kind),) for slot in slots)


def _is_marked(column: pa.ChunkedArray, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """For each text, whether it spells a special token or holds a sign of lost bytes; shape [texts]."""
    marked = np.zeros(len(column), np.bool_)
    texts = column.combine_chunks()
    _, offsets, data = texts.buffers()
    if data is None:
        return marked
    borders = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    read = np.frombuffer(data, np.uint8)[: borders[-1]]
    marks, heads, is_pair = _marks(vocabulary)
    first = np.flatnonzero(np.logical_or.reduce([read[:-1] == head for head in heads]))
    pairs = first[is_pair[read[first].astype(np.uint16) << 8 | read[first + 1]]]
    found = [place for place in pairs[pairs >= borders[0]].tolist() if marks.match(data, place)]
    marked[np.searchsorted(borders, found, side="right") - 1] = True
    return marked


@cache
def _marks(vocabulary: Vocabulary) -> tuple[re.Pattern[bytes], list[int], NDArray[np.bool_]]:
    """What `_is_marked` looks for; the bytes that can come first; which pairs of bytes (first * 256 + second) can."""
    marks = [text.encode() for text in (*vocabulary.named, *LOST_BYTES)]
    is_pair = np.zeros(1 << 16, np.bool_)
    is_pair[[mark[0] << 8 | mark[1] for mark in marks]] = True
    return re.compile(b"|".join(map(re.escape, marks))), sorted({mark[0] for mark in marks}), is_pair


def grade_group(group: PlainGroup, ids: NDArray[np.int32], counts: NDArray[np.int64]) -> tuple[PlainGroup, pa.Table]:
    """The replies of a group that make their counts, and their rows: nothing else can be said against them.

    Args:
        group: whose.
        ids: of `group.texts`, one behind the other, shape [n].
        counts: how many are each text's, shape [texts].

    Returns:
        The group with these replies alone, and a table of the columns of `graded_tables.SCHEMA`.
    """
    by_reply = counts.reshape(len(group.rows), -1)
    fits = _fits(group, by_reply)
    if not fits.all():
        ids, by_reply = ids[np.repeat(fits, by_reply.sum(axis=1))], by_reply[fits]
    group = group.only(fits)
    rows, end_token = group.rows, group.possibility.layout.end_token
    requests = zip(group.requests, rows.column("prompt_tokens").to_pylist(), strict=True)
    prompts = [prompt_of(request, stated, group.vocabulary, group.format) for request, stated in requests]
    billed = rows.column("completion_tokens")
    borders = _borders(group, ids, by_reply.sum(axis=1))
    constants = {
        "host": host_of(group.first),
        "format": group.format.name,
        "grade": Grade.exact_unique.value,
        "end_token": end_token,
        "stack": group.possibility.stack.name,
        "readings": 1,
    }
    columns: dict[str, Any] = {name: rows.column(name) for name in _AS_STATED}
    columns |= {name: pa.repeat(value, len(rows)) for name, value in constants.items()}
    columns |= {
        "reconstructed_tokens": billed,
        "reason": [
            explain_fit(count, end_token, group.profile, inside)
            for count, inside in zip(billed.to_pylist(), borders, strict=True)
        ],
        "prompt_grade": [prompt.grade.value for prompt in prompts],
        "prompt_tokens": rows.column("prompt_tokens"),
        "prompt_reason": [prompt.reason for prompt in prompts],
        "split": pa.nulls(len(rows), pa.string()),
    }
    return group, table_of(columns, _completions(group, ids, by_reply), [prompt.prompt_ids for prompt in prompts])


def _fits(group: PlainGroup, by_reply: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each reply whether it makes its counts, that of its reasoning too where its stack counts so."""
    layout, stack = group.possibility.layout, group.possibility.stack
    slots = iter(by_reply.T)
    sizes = [next(slots) if isinstance(part, Slot) else np.ones(len(by_reply), np.int64) for part in layout.parts]
    billed = sum(sizes) - (layout.end_token == "not counted")
    fits: NDArray[np.bool_] = billed == group.rows.column("completion_tokens").to_numpy()
    if stack.counts_reasoning and group.first.reasoning:
        thought = sum(sizes[: layout.parts.index(Special(END_THINK)) + 1])
        stated = group.rows.column("reasoning_tokens")
        fits &= np.array(pc.is_null(stated)) | (pc.fill_null(stated, -1).to_numpy() == thought)
    return fits


def _completions(group: PlainGroup, ids: NDArray[np.int32], by_reply: NDArray[np.int64]) -> pa.ListArray:
    """The ids of the texts with the special tokens set between them."""
    parts, slots = group.possibility.layout.parts, by_reply.shape[1]
    starts = np.concatenate([np.zeros(1, np.int64), by_reply.cumsum()])
    behind, specials = [], []
    for part in parts:
        if isinstance(part, Special):
            behind.append(sum(isinstance(other, Slot) for other in parts[: parts.index(part)]))
            specials.append(group.vocabulary.special_id(part.text))
    places = starts[np.arange(len(by_reply))[:, None] * slots + np.array(behind, np.int64)]
    whole = np.insert(ids, places.ravel(), np.tile(np.array(specials, np.int32), len(by_reply)))
    return id_lists(whole, by_reply.sum(axis=1) + len(specials))


def _borders(group: PlainGroup, ids: NDArray[np.int32], counts: NDArray[np.int64]) -> list[int]:
    """For each reply how many borders of its stream's chunks fall inside its tokens."""
    column = group.rows.column("chunk_lengths")
    if column.null_count == len(column):
        return [0] * len(column)
    lengths = column.combine_chunks()
    chunks, borders = lengths.values.to_numpy(), lengths.offsets.to_numpy()
    inside = []
    for place, (texts, of_reply) in enumerate(zip(group.texts, np.split(ids, counts.cumsum()[:-1]), strict=True)):
        ends = chunks[borders[place] : borders[place + 1]].cumsum()
        inside.append(borders_inside(of_reply, _in_bytes(b"".join(texts), ends), group.vocabulary))
    return inside


def _in_bytes(text: bytes, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places counted in characters as places in bytes."""
    if text.isascii():
        return places
    starts = np.flatnonzero((np.frombuffer(text, np.uint8) & 0xC0) != 0x80)
    in_bytes: NDArray[np.int64] = np.append(starts, len(text))[places]
    return in_bytes
