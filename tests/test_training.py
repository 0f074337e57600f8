"""Training rows: what the model saw, then what it sampled, and a mask that a second way of finding it agrees with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kimi_helpers.bulk_reconstruction import SCHEMA, BulkSettings, grade_table
from kimi_helpers.formats import FORMATS, encode_segments
from kimi_helpers.profiles import read_profiles
from kimi_helpers.reply_tables import raw_table
from kimi_helpers.token_lists import flat_rows
from kimi_helpers.training import Events, portable_source, rows_of_graded, rows_of_native
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import DATA
from tests.loopback_replies import loopback_replies

K25, THINKING = FORMATS["kimi-k2.5"], FORMATS["kimi-k2-thinking"]
USER = {"role": "user", "content": "What is 2 + 2?"}
CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def graded(*rows: dict[str, Any]) -> pa.Table:
    """Graded rows with these values; the others as a good reply of K2.5 has them."""
    usual = {
        "source": "/somewhere/journal.sqlite#0123456789abcdef",
        "host": "P",
        "model": "moonshotai/kimi-k2.5",
        "format": "kimi-k2.5",
        "finish_reason": "stop",
        "grade": "exact_unique",
        "prompt_grade": "equal",
        "completion_tokens": 3,
        "prompt_tokens": 9,
    }
    return pa.Table.from_pylist([usual | row for row in rows], SCHEMA)


def events(rows: int, **given: Sequence[Any]) -> Events:
    usual: dict[str, Any] = {"dataset": ["d"] * rows, "prompt_id": ["p"] * rows, "sample": [0] * rows}
    return Events(**(usual | {"name": [str(place) for place in range(rows)]} | given))


def made(prompt: Sequence[int], completion: Sequence[int], **values: Any) -> dict[str, Any]:
    table = rows_of_graded(graded({"prompt_ids": prompt, "token_ids": completion, **values}), events(1))
    return dict(table.to_pylist()[0])


def answer(kimi: Vocabulary, reasoning: str = "Sum.", content: str = "4", **how: Any) -> list[int]:
    format = how.pop("format", K25)
    return encode_segments(kimi, format.completion_segments([reasoning], [content], **how))


def mask_by_text(kimi: Vocabulary, ids: Sequence[int], supplied: str) -> list[int]:
    """The mask by another way: from the text, read backwards to the last assistant's header."""
    text = kimi.decode(ids)
    header = f"<|im_assistant|>assistant<|im_middle|>{supplied}"
    begin = len(text[: text.rindex(header) + len(header)].encode())
    starts = np.cumsum([0, *(len(kimi.decode_bytes([id])) for id in ids)])[:-1]
    return [int(start >= begin) for start in starts]


def test_k25_supplies_the_opening_think_and_everything_sampled_is_supervised(kimi: Vocabulary) -> None:
    prompt = K25.prompt_ids(kimi, [USER])
    row = made(prompt, answer(kimi))
    assert row["input_ids"] == prompt + answer(kimi)
    supervised = [id for id, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if bit]
    assert kimi.decode(supervised) == "Sum.</think>4<|im_end|>"
    assert kimi.decode(prompt).endswith("<|im_middle|><think>")
    assert row["loss_mask"] == mask_by_text(kimi, row["input_ids"], supplied="<think>")
    assert (row["fault"], row["ends_turn"]) == (None, True)
    assert (row["prompt_length"], row["completion_length"]) == (len(prompt), len(answer(kimi)))


def test_k2_thinking_samples_its_opening_think(kimi: Vocabulary) -> None:
    prompt = THINKING.prompt_ids(kimi, [USER])
    row = made(prompt, answer(kimi, format=THINKING), format="kimi-k2-thinking")
    supervised = [id for id, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if bit]
    assert kimi.decode(supervised) == "<think>Sum.</think>4<|im_end|>"
    assert row["loss_mask"] == mask_by_text(kimi, row["input_ids"], supplied="")
    assert row["fault"] is None


def test_with_thinking_off_the_prompt_supplies_both_think_tokens(kimi: Vocabulary) -> None:
    prompt = K25.prompt_ids(kimi, [USER], thinking=False)
    row = made(prompt, answer(kimi, "", thinking=False))
    supervised = [id for id, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if bit]
    assert kimi.decode(supervised) == "4<|im_end|>"
    assert row["loss_mask"] == mask_by_text(kimi, row["input_ids"], supplied="<think></think>")


def test_a_reply_cut_by_its_length_has_no_end_token(kimi: Vocabulary) -> None:
    cut = answer(kimi, ends=False)
    row = made(K25.prompt_ids(kimi, [USER]), cut, finish_reason="length")
    assert (row["fault"], row["ends_turn"], row["input_ids"][-1]) == (None, False, kimi.encode("4")[0])
    stopped = made(K25.prompt_ids(kimi, [USER]), cut)
    assert stopped["fault"] == "no end token, though not cut by length"


def test_every_turn_of_a_tool_loop_has_a_row_with_the_prompt_that_the_model_saw(kimi: Vocabulary) -> None:
    asked = {"role": "assistant", "content": "", "reasoning_content": "Look it up.", "tool_calls": [CALL]}
    told = {"role": "tool", "tool_call_id": "functions.f:0", "content": "4"}
    turns = [
        (K25.prompt_ids(kimi, [USER]), answer(kimi, "Look it up.", "", calls=[("functions.f:0", ['{"a": 1}'])])),
        (K25.prompt_ids(kimi, [USER, asked, told]), answer(kimi)),
    ]
    table = rows_of_graded(
        graded(*({"prompt_ids": prompt, "token_ids": reply} for prompt, reply in turns)),
        events(2, prompt_id=["p#0", "p#1"]),
    )
    first, second = table.to_pylist()
    # in a loop the template keeps the reasoning, so the second prompt goes on where the first row ended
    assert second["input_ids"][: len(first["input_ids"])] == first["input_ids"]
    assert "Look it up." in kimi.decode(second["input_ids"][: second["prompt_length"]])
    assert sum(second["loss_mask"]) == len(answer(kimi))
    assert first["conversation_id"] == second["conversation_id"]
    assert first["row_id"] != second["row_id"]
    assert (first["fault"], second["fault"]) == (None, None)


def test_the_template_trap(kimi: Vocabulary) -> None:
    """The finished conversation, rendered as public tools do, has lost the reasoning that our row holds."""
    row = made(K25.prompt_ids(kimi, [USER]), answer(kimi))
    finished = [USER, {"role": "assistant", "reasoning_content": "Sum.", "content": "4"}]
    rendered = K25.prompt_ids(kimi, finished, add_generation_prompt=False)
    assert kimi.decode(rendered).endswith("<think></think>4<|im_end|>")
    assert kimi.decode(row["input_ids"]).endswith("<think>Sum.</think>4<|im_end|>")
    assert rendered != row["input_ids"]
    # the prefix is that of the prompt, so a check of prefixes sees nothing (vllm-project/speculators)
    assert rendered[: row["prompt_length"]] == row["input_ids"][: row["prompt_length"]]


@pytest.mark.parametrize(
    ("prompt", "completion", "fault"),
    [
        ("<|im_user|>user<|im_middle|>a<|im_end|>", "x<|im_end|>", "the prompt does not end where a reply begins"),
        ("<|im_assistant|>assistant<|im_middle|>", "x<|im_end|>", "the prompt does not end where a reply begins"),
        ("<|im_assistant|>assistant<|im_middle|><think>", "", "no completion ids"),
        ("", "x<|im_end|>", "no prompt ids"),
        ("<|im_assistant|>assistant<|im_middle|><think>", "x<|im_end|>y<|im_end|>", "it goes on after its end token"),
        ("<|im_assistant|>assistant<|im_middle|><think>", "x<|im_end|>y", "it goes on after its end token"),
        ("<|im_assistant|>assistant<|im_middle|><think></think>", "x<|im_end|>", None),
    ],
)
def test_a_row_whose_mask_cannot_be_right_says_why(
    kimi: Vocabulary, prompt: str, completion: str, fault: str | None
) -> None:
    ids = [kimi.encode(text, specials=True) for text in (prompt, completion)]
    assert made(*ids)["fault"] == fault


def test_an_id_outside_the_vocabulary_and_an_unknown_model_are_faults(kimi: Vocabulary) -> None:
    prompt = K25.prompt_ids(kimi, [USER])
    assert made(prompt, [kimi.size, *answer(kimi)])["fault"] == "an id outside the vocabulary"
    assert made(prompt, answer(kimi), format=None)["fault"] == "unknown format"


def test_conversations_are_told_apart_by_their_first_user_turn(kimi: Vocabulary) -> None:
    other = {"role": "user", "content": "What is 2 + 3?"}
    system = {"role": "system", "content": "Be brief."}
    later = [USER, {"role": "assistant", "content": "4"}, other]
    prompts = [K25.prompt_ids(kimi, messages) for messages in ([USER], [system, USER], later, [other])]
    table = rows_of_graded(
        graded(*({"prompt_ids": prompt, "token_ids": answer(kimi)} for prompt in prompts)), events(4)
    )
    first, with_system, after, another = table["conversation_id"].to_pylist()
    assert first == with_system == after != another


def test_a_row_id_depends_on_the_event_and_on_the_ids_alone(kimi: Vocabulary) -> None:
    prompt = K25.prompt_ids(kimi, [USER])
    row = {"prompt_ids": prompt, "token_ids": answer(kimi)}
    moved = row | {"source": "/elsewhere/journal.sqlite#0123456789abcdef", "grade": "engine_ids"}
    other_ids = row | {"token_ids": answer(kimi, "Add.")}
    table = rows_of_graded(graded(row, moved, other_ids, row), events(4, name=["a", "a", "a", "b"]))
    ids = table["row_id"].to_pylist()
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert set(table["source"].to_pylist()) == {"journal.sqlite#0123456789abcdef"}


def test_a_source_is_named_without_its_folder() -> None:
    assert portable_source("/a/b/journal.sqlite#0123") == "journal.sqlite#0123"
    assert portable_source("/a/b.c/reply.json") == "reply.json"
    assert portable_source("reply 3") == "reply 3"


def test_native_ids_join_on_equal_terms(kimi: Vocabulary) -> None:
    prompt, reply = K25.prompt_ids(kimi, [USER]), answer(kimi)
    ids = flat_rows(pa.array([prompt + reply, prompt + reply[:-1]], pa.list_(pa.int32())))
    stated = {
        "model": pa.array(["moonshotai/kimi-k2.5"] * 2),
        "format": pa.array(["kimi-k2.5"] * 2),
        "provider": pa.nulls(2, pa.string()),
        "finish_reason": pa.array(["stop"] * 2),
        "source": pa.array(["native.jsonl"] * 2),
    }
    native = rows_of_native(ids, np.array([len(prompt)] * 2), stated, events(2), None).to_pylist()
    reconstructed = made(prompt, reply)
    for name in ("input_ids", "loss_mask", "conversation_id", "ends_turn", "fault", "row_id"):
        assert native[0][name] == reconstructed[name]
    assert native[0]["grade"] == native[0]["prompt_grade"] == "engine_ids"
    assert native[1]["fault"] == "no end token, though not cut by length"


def test_the_masks_of_every_loopback_host_agree_with_the_text(kimi: Vocabulary) -> None:
    replies = loopback_replies()
    table = grade_table(raw_table(replies), BulkSettings(read_profiles(DATA / "profiles" / "loopback.toml")))
    rows = rows_of_graded(table, events(len(table))).to_pylist()
    checked = 0
    for row, prompt, reply in zip(rows, table["prompt_ids"].to_pylist(), table["token_ids"].to_pylist(), strict=True):
        if row["fault"] is None:
            assert row["input_ids"] == prompt + reply
            text, header = kimi.decode(row["input_ids"]), "<|im_assistant|>assistant<|im_middle|>"
            before, _, sampled = text.rpartition(header)
            supplied = {"kimi-k2.5": ("<think></think>", "<think>"), "kimi-k2-thinking": ("",)}[row["format"]]
            asked_off = kimi.decode(prompt).endswith("</think>")
            given = supplied[0] if asked_off else supplied[-1]
            masked = kimi.decode([id for id, bit in zip(row["input_ids"], row["loss_mask"], strict=True) if not bit])
            assert masked == before + header + given
            assert sampled.startswith(given)
            checked += 1
    assert checked > 100


def test_no_rows_make_an_empty_table() -> None:
    assert rows_of_graded(SCHEMA.empty_table(), events(0)).num_rows == 0
