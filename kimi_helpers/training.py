"""Training rows: one a generation event, the prompt that the model saw and then what it sampled.

    input_ids = prompt ids ++ completion ids        loss_mask = 0 on the prompt, 1 on the completion

The finished conversation is never rendered: K2.5's template empties the reasoning of the very turn to train on
(fw-ai/cookbook#386). What the prompt supplies is not supervised, so K2.5's `<think>` has 0 and K2-Thinking's, which
the model samples, has 1 (NVIDIA-NeMo/Automodel#3739); the end-of-turn token is supervised, and a reply that was cut
by its length has none. The mask marks the tokens that were sampled; a trainer shifts it itself, or does not
(sgl-project/SpecForge#885).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kimi_helpers.formats import BEGIN_THINK, END_THINK, END_TURN, FORMATS, HEADERS, MIDDLE, ModelFormat
from kimi_helpers.token_lists import (
    Flat,
    first_places,
    flat_rows,
    joined,
    list_column,
    next_places,
    row_digests,
    row_sums,
)
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

ROW_SCHEMA = pa.schema(
    [
        ("row_id", pa.string()),  # 32 hexadecimal digits of the event's name and its ids
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.uint8())),
        ("prompt_length", pa.int32()),  # in tokens, of input_ids
        ("completion_length", pa.int32()),
        ("billed_prompt_tokens", pa.int64()),  # as the host states them; null where it does not
        ("billed_completion_tokens", pa.int64()),
        ("grade", pa.string()),
        ("prompt_grade", pa.string()),
        ("dataset", pa.string()),
        ("prompt_id", pa.string()),
        ("sample", pa.int32()),
        ("conversation_id", pa.string()),  # the same for every turn and sample of a conversation
        ("provider", pa.string()),
        ("model", pa.string()),
        ("format", pa.string()),
        ("finish_reason", pa.string()),
        ("ends_turn", pa.bool_()),  # whether the last id is the end-of-turn token
        ("stack", pa.string()),
        ("source", pa.string()),  # JOURNAL#KEY or the file's name
        ("fault", pa.string()),  # why the row can be no training row, whatever a policy allows; null where none
    ]
)
# What a training set holds: rows without a fault.
SET_SCHEMA = pa.schema([field for field in ROW_SCHEMA if field.name != "fault"])


@dataclass(frozen=True)
class Events:
    """What a table of replies states of its generation events, a value a row.

    Attributes:
        dataset, prompt_id, sample: as the journal names them.
        name: what tells the event from others of its prompt: the journal's key, an id, a file's name.
    """

    dataset: Sequence[str]
    prompt_id: Sequence[str | None]
    sample: Sequence[int | None]
    name: Sequence[str]


@cache
def vocabulary_of(tokenizer: str | None, format: str) -> Vocabulary:
    """The vocabulary of a format, loaded once a process."""
    return load_vocabulary(tokenizer, format)


def rows_of_graded(graded: pa.Table, events: Events, tokenizer: str | None = None) -> pa.Table:
    """The training rows of graded rows, one each and in their order.

    Args:
        graded: the columns of `bulk_reconstruction.SCHEMA`.
        events: what each row's event is called.
        tokenizer: as `load_vocabulary`'s `source`.

    Returns:
        A table of `ROW_SCHEMA`. A row without ids has empty lists and a `fault`.
    """
    prompts, completions = flat_rows(graded["prompt_ids"]), flat_rows(graded["token_ids"])
    stated = {
        "billed_prompt_tokens": graded["prompt_tokens"],
        "billed_completion_tokens": graded["completion_tokens"],
        "provider": graded["host"],
        "source": pa.array([portable_source(source) for source in graded["source"].to_pylist()]),
        **{name: graded[name] for name in ("grade", "prompt_grade", "model", "format", "finish_reason", "stack")},
    }
    return _rows(prompts, completions, stated, events, tokenizer)


def rows_of_native(
    ids: Flat, prompt_lengths: NDArray[np.int64], stated: Mapping[str, pa.Array], events: Events, tokenizer: str | None
) -> pa.Table:
    """The training rows of ids that an engine returned: graded `engine_ids`, and checked like all others.

    Args:
        ids: prompt and completion of each row.
        prompt_lengths: how many ids of each row are the prompt's.
        stated: the columns `model`, `format`, `provider`, `finish_reason` and `source`.
    """
    values, offsets = ids
    borders = offsets[:-1] + prompt_lengths
    in_prompt = np.arange(len(values)) < np.repeat(borders, np.diff(offsets))
    prompts = values[in_prompt], np.concatenate([[0], np.cumsum(prompt_lengths)])
    completions = values[~in_prompt], offsets - prompts[1]
    rows = len(offsets) - 1
    nothing = pa.nulls(rows)
    engine = pa.array(["engine_ids"] * rows)
    graded = {"grade": engine, "prompt_grade": engine, "stack": nothing}
    billed = dict.fromkeys(("billed_prompt_tokens", "billed_completion_tokens"), nothing)
    return _rows(prompts, completions, {**stated, **graded, **billed}, events, tokenizer)


def _rows(
    prompts: Flat, completions: Flat, stated: Mapping[str, pa.Array], events: Events, tokenizer: str | None
) -> pa.Table:
    (ids, offsets), mask = joined(prompts, completions)
    lengths = np.diff(prompts[1])
    digests = row_digests((ids, offsets), lengths.tolist())
    laid_out = _by_format(prompts, completions, stated, tokenizer)
    conversations = laid_out["conversation_id"]
    prompt_ids = [name or f"of-{told}" for name, told in zip(events.prompt_id, conversations, strict=True)]
    named = zip(events.dataset, prompt_ids, events.name, digests, strict=True)
    finish = zip(stated["finish_reason"].to_pylist(), laid_out["ends_turn"], strict=True)
    columns = {
        **stated,
        **laid_out,
        "finish_reason": [reason or ("stop" if ended else None) for reason, ended in finish],
        "row_id": [_row_id(*each) for each in named],
        "input_ids": list_column(ids, offsets),
        "loss_mask": list_column(mask, offsets),
        "prompt_length": lengths,
        "completion_length": np.diff(completions[1]),
        "dataset": events.dataset,
        "prompt_id": prompt_ids,
        "sample": events.sample,
    }
    return pa.table([_typed(columns[field.name], field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)


def _typed(values: object, kind: pa.DataType) -> pa.Array:
    is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
    return pc.cast(values, kind) if is_arrow else pa.array(values, kind)


def _row_id(dataset: str, prompt_id: str, event: str, digest: bytes) -> str:
    name = "\0".join((dataset, prompt_id, event)).encode()
    return hashlib.blake2b(digest + name, digest_size=16).hexdigest()


def portable_source(source: str) -> str:
    """A source without its folder, which differs between machines: the file's name, and the place in it."""
    path, mark, key = source.rpartition("#")
    name = (path if mark else source).rpartition("/")[2]
    return f"{name}#{key}" if mark else name


def _by_format(
    prompts: Flat, completions: Flat, stated: Mapping[str, pa.Array], tokenizer: str | None
) -> dict[str, list[object]]:
    """The columns that depend on where special tokens stand; a chunk mostly holds one format, but may hold several."""
    rows = len(prompts[1]) - 1
    columns: dict[str, list[object]] = {name: [None] * rows for name in ("conversation_id", "ends_turn", "fault")}
    names = stated["format"].to_pylist()
    finishes = stated["finish_reason"].to_pylist()
    for name in dict.fromkeys(names):
        layout = FORMATS.get(name or "")
        of_format: Mapping[str, Sequence[object]] = (
            _read_layout(prompts, completions, finishes, layout, vocabulary_of(tokenizer, layout.name))
            if layout
            else {"conversation_id": [""] * rows, "ends_turn": [False] * rows, "fault": ["unknown format"] * rows}
        )
        for place, of_row in enumerate(names):
            if of_row == name:
                for column, values in of_format.items():
                    columns[column][place] = values[place]
    return columns


def _read_layout(
    prompts: Flat, completions: Flat, finishes: Sequence[str | None], layout: ModelFormat, vocabulary: Vocabulary
) -> dict[str, Sequence[object]]:
    end = vocabulary.special_id(END_TURN)
    ended = _ends_in(completions, [end])
    return {
        "conversation_id": conversation_ids(prompts, vocabulary),
        "ends_turn": ended.tolist(),
        "fault": _faults(prompts, completions, ended, finishes, layout, vocabulary),
    }


def _ends_in(rows: Flat, wanted: Sequence[int]) -> NDArray[np.bool_]:
    """Which rows end in some ids."""
    ids, offsets = rows
    ends: NDArray[np.bool_] = np.diff(offsets) >= len(wanted)
    for back, id in enumerate(reversed(wanted), 1):
        ends[ends] = ids[offsets[1:][ends] - back] == id
    return ends


def _faults(
    prompts: Flat,
    completions: Flat,
    ended: NDArray[np.bool_],
    finishes: Sequence[str | None],
    layout: ModelFormat,
    vocabulary: Vocabulary,
) -> list[str | None]:
    """Why a row can be no training row: the mask's border must be where the model began, and its end where it ended."""
    end = vocabulary.special_id(END_TURN)
    outside = [row_sums((ids < 0) | (ids >= vocabulary.size), offsets) > 0 for ids, offsets in (prompts, completions)]
    starts_reply = np.logical_or.reduce([_ends_in(prompts, opening) for opening in _openings(layout, vocabulary)])
    cut = np.array([finish == "length" for finish in finishes], bool)
    found = {
        "no completion ids": np.diff(completions[1]) == 0,
        "no prompt ids": np.diff(prompts[1]) == 0,
        "an id outside the vocabulary": outside[0] | outside[1],
        "the prompt does not end where a reply begins": ~starts_reply,
        "it goes on after its end token": row_sums(completions[0] == end, completions[1]) > ended,
        "no end token, though not cut by length": ~ended & ~cut,
    }
    which = np.select(list(found.values()), list(range(len(found))), -1)
    names = list(found)
    return [None if place < 0 else names[place] for place in which.tolist()]


def _openings(layout: ModelFormat, vocabulary: Vocabulary) -> list[list[int]]:
    """How a prompt of the format can end: the assistant's header, and where the prompt opens the thinking, that too."""
    header = [
        vocabulary.special_id(HEADERS["assistant"]),
        *vocabulary.encode("assistant"),
        vocabulary.special_id(MIDDLE),
    ]
    if layout.opening_think != "prompt":
        return [header]
    begin, end = vocabulary.special_id(BEGIN_THINK), vocabulary.special_id(END_THINK)
    return [[*header, begin], [*header, begin, end]]


def conversation_ids(prompts: Flat, vocabulary: Vocabulary) -> list[str]:
    """What each prompt's conversation is called: 16 hexadecimal digits of its first user turn.

    All turns, samples and hosts of a conversation share it, also where a host adds a system prompt; so do
    conversations of one opening, which is right for a split: none of them may be on both sides.
    """
    ids, offsets = prompts
    starts = first_places(ids, offsets, vocabulary.special_id(HEADERS["user"]))
    middles = next_places(np.flatnonzero(ids == vocabulary.special_id(MIDDLE)), starts, offsets[1:])
    ends = next_places(np.flatnonzero(ids == vocabulary.special_id(END_TURN)), middles, offsets[1:])
    without = starts == offsets[1:]
    firsts = np.where(without, offsets[:-1], middles)
    data = memoryview(np.ascontiguousarray(ids, "<i4").tobytes())
    return [
        hashlib.blake2b(data[4 * first : 4 * end], digest_size=8).hexdigest()
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)
    ]
