"""The audit: counts that other sources state, and every verdict against a second look."""

import json
from pathlib import Path

import pytest

from kimi_helpers.quirks import Audit, audit, impostors, special_slots
from kimi_helpers.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def found(kimi: Vocabulary) -> Audit:
    return audit(kimi)


def test_counts_of_kimi_s_vocabulary(found: Audit) -> None:
    counts = found.counts()
    assert counts["all ids"] == 163840
    assert counts["part of a character"] == 1172  # as ai-dynamo/dynamo#6996 counts
    assert counts["special, named"] == 23
    assert counts["special, reserved"] == 256 - 23
    assert counts["single bytes"] == 256
    assert counts["numbers 0 to 999 that are one token"] == 1000
    assert counts["ASCII digits only"] == 10 + 100 + 1000


def test_every_verdict_is_shown_by_a_text(found: Audit, kimi: Vocabulary) -> None:
    ordinary = found.ordinary
    assert len(found.unreachable) + ordinary["witness"].notna().sum() == kimi.ranks
    partial = ordinary[ordinary["text"].isna() & ordinary["witness"].notna()]
    assert all(id in kimi.encode(row["witness"]) for id, row in partial.iterrows())
    sample = ordinary[ordinary["round_trip"] == "same"].iloc[::531]
    assert all(kimi.encode(row["text"]) == [id] for id, row in sample.iterrows())


def test_the_ids_that_are_no_text(found: Audit) -> None:
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert set(found.unreachable["bytes"]) == {bytes([byte]) for byte in never} | {"о".encode() + b"\xd0"}
    assert list(found.changed["text"]) == [" I'", "⭐️⭐️"]


def test_another_vocabulary_can_be_audited(tiny: Vocabulary) -> None:
    found = audit(tiny)
    assert len(found.tokens) == 516
    assert found.counts()["part of a character"] == 128
    assert len(found.unreachable) == 13
    assert set(found.tokens.loc[260:, "round_trip"]) == {"same"}


def test_special_slots(kimi: Vocabulary, shared_dir: Path) -> None:
    table = special_slots(kimi)
    config = json.loads((shared_dir / "kimi-tokenizer/tokenizer_config.json").read_text("utf-8"))
    published = {row["content"]: row["special"] for row in config["added_tokens_decoder"].values()}
    named = table[table["named"]]
    assert dict(zip(named["text"], named["special"], strict=True)) == published
    assert set(named[~named["removed"].astype(bool)]["text"]) == {
        text for text, special in published.items() if not special
    }
    assert table["survives"].all()
    assert not table["removed"][~table["named"]].any()
    assert table["gap"].sum() == 256 - 23
    assert table.loc[kimi.special_id("<|im_end|>"), "as_text"] == 6


def test_impostors_are_ordinary_text(kimi: Vocabulary) -> None:
    table = impostors(kimi)
    forms = set(table["text"])
    assert {"<|tool_call_section_begin|>", "<｜im_end｜>", "<|IM_END|>", "<|im_end |>", "</think >"} <= forms
    assert forms.isdisjoint(kimi.named)
    assert all(kimi.special_ids.isdisjoint(kimi.encode(form, specials=True)) for form in forms)
