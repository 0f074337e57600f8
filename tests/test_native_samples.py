"""Native samples: what comes back, what does not, and which id ends a turn."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers import native_samples
from kimi_helpers.native_samples import (
    CheckedRow,
    Difference,
    EndOfTurnConflict,
    check_samples,
    differences,
    summary,
)
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary, build_vocabulary
from tests.conftest import tiny_rank_file, tiny_table, write_folder
from tests.test_main import invoke, refused

HELLO, WORLD, HELL, LETTER_O, END, END_THINK = 22931, 2695, 12000, 78, 163586, 163607
CHAS = 163533


def write(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "native.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
    return path


# what comes back


def test_canonical_ids_come_back(kimi: Vocabulary) -> None:
    assert differences([HELLO, END_THINK, HELLO, WORLD, END], kimi) == ()


def test_another_split_is_shown_stretch_by_stretch(kimi: Vocabulary) -> None:
    ids = [HELL, LETTER_O, WORLD, END_THINK, HELLO, 220, WORLD, END_THINK, HELL, LETTER_O, END]
    assert kimi.encode("  world") == [220, WORLD]  # so the middle comes back
    assert differences(ids, kimi) == (
        Difference(0, (HELL, LETTER_O), (HELLO,), "split"),
        Difference(8, (HELL, LETTER_O), (HELLO,), "split"),
    )


def test_a_special_token_spelled_in_ordinary_tokens_is_a_kind_of_its_own(kimi: Vocabulary) -> None:
    spelled = (993, 39964, 29)
    assert b"".join(map(kimi.token_bytes, spelled)) == b"</think>"
    assert differences([HELLO, *spelled, END], kimi) == (Difference(1, spelled, (END_THINK,), "special"),)


def test_bytes_that_no_text_can_hold(kimi: Vocabulary) -> None:
    first_of_two = 127
    assert kimi.token_bytes(first_of_two) == b"\xc3"
    assert differences([HELLO, first_of_two, END], kimi) == (Difference(1, (first_of_two,), (9618,), "not_utf8"),)
    assert kimi.encode("\ufffd") == [9618]
    both = [first_of_two, HELLO, HELL, LETTER_O, END_THINK, first_of_two]
    assert differences(both, kimi) == (
        Difference(0, (first_of_two,), (9618,), "not_utf8"),
        Difference(2, (HELL, LETTER_O), (HELLO,), "split"),
        Difference(5, (first_of_two,), (9618,), "not_utf8"),
    )
    replaced = differences([HELLO, 9618, END], kimi)
    assert replaced == ()  # the character itself is a text like any other


def test_halves_of_a_character_that_stand_beside_each_other_are_a_split(kimi: Vocabulary) -> None:
    assert differences([127, 102, END], kimi) == (Difference(0, (127, 102), (1941,), "split"),)


def test_another_vocabulary_gives_its_own_ids(tiny: Vocabulary) -> None:
    th, the, end = 256, 257, 266
    assert differences([the, end], tiny) == ()
    assert differences([th, ord("e"), end], tiny) == (Difference(0, (th, ord("e")), (the,), "split"),)


@given(st.lists(st.integers(0, 260 + 255), max_size=30))
def test_law_the_differences_turn_the_native_ids_into_the_encoded_ones(tiny: Vocabulary, ids: list[int]) -> None:
    found = differences(ids, tiny)
    changed = list(ids)
    for difference in reversed(found):
        stretch = slice(difference.start, difference.start + len(difference.native))
        assert tuple(changed[stretch]) == difference.native != difference.encoded
        changed[stretch] = difference.encoded
    assert changed == tiny.encode(tiny.decode(ids), specials=True)
    for difference in found:
        if difference.kind == "not_utf8":
            assert b"\xef\xbf\xbd" in tiny.decode_bytes(difference.encoded)
        else:
            assert tiny.decode_bytes(difference.native) == tiny.decode_bytes(difference.encoded)


# the end of a turn


@pytest.mark.parametrize(
    "row",
    [
        {"token_ids": [HELLO, CHAS]},
        {"token_ids": [HELLO, CHAS], "finish_reason": "stop"},
        {"output_ids": [HELLO, CHAS], "meta_info": {"finish_reason": {"type": "stop", "matched": CHAS}}},
    ],
)
def test_a_row_that_ends_in_another_id_stops_with_one_sentence(
    tmp_path: Path, kimi: Vocabulary, row: dict[str, Any]
) -> None:
    path = write(tmp_path, {"token_ids": [HELLO, END]}, row, {"token_ids": [HELLO, END]})
    rows = check_samples(path, kimi)
    assert next(rows).place == "line 1"
    with pytest.raises(EndOfTurnConflict) as caught:
        next(rows)
    assert str(caught.value) == (
        f"{path}, line 2: it ends in 163533 ('chas'), but a turn ends in 163586 ('<|im_end|>'); repair the source, or"
        " give rows that were cut finish_reason 'length'."
    )


def test_rows_that_were_cut_may_end_anywhere(tmp_path: Path, kimi: Vocabulary) -> None:
    sglang = {"output_ids": [HELLO], "meta_info": {"finish_reason": {"type": "length", "length": 1}}}
    path = write(tmp_path, {"token_ids": [HELLO], "finish_reason": "length"}, sglang, {"token_ids": [HELLO, END]})
    assert [row.end for row in check_samples(path, kimi)] == ["cut", "cut", "end_of_turn"]


def test_the_end_of_turn_is_that_of_the_vocabulary_in_use(tmp_path: Path, tiny: Vocabulary) -> None:
    assert [row.end for row in check_samples(write(tmp_path, {"token_ids": [257, 266]}), tiny)] == ["end_of_turn"]
    with pytest.raises(EndOfTurnConflict, match=r"it ends in 263 \('\[EOS\]'\), but a turn ends in 266 "):
        list(check_samples(write(tmp_path, {"token_ids": [257, 263]}), tiny))
    table = [token for token in tiny_table() if token.text != "<|im_end|>"]
    without = build_vocabulary(tiny_rank_file(), table, "without")
    with pytest.raises(UnknownSpecialToken):
        list(check_samples(write(tmp_path, {"token_ids": [257, 266]}), without))


# rows


def test_bad_rows_are_told_and_stop_no_other(tmp_path: Path, kimi: Vocabulary) -> None:
    bad = [
        "{",
        [1],
        {"ids": [1]},
        {"token_ids": []},
        {"token_ids": "text"},
        {"token_ids": [HELLO, 163840]},
        {"token_ids": [-1]},
        {"token_ids": [True]},
        {"token_ids": [HELLO, None]},
        {"token_ids": [1.0]},
        {"token_ids": [END], "text": 7},
    ]
    good = {"token_ids": f"[{HELLO}, {END}]"}
    *rows, last = check_samples(write(tmp_path, *bad, good), kimi)
    assert [row.place for row in rows] == [f"line {number}" for number in range(1, 12)]
    faults = [str(row.fault) for row in rows]
    assert faults[0].startswith("it is not JSON")
    outside = "token_ids holds {} at {}; the vocabulary's ids are 0 to 163839"
    assert faults[1:] == [
        "it is not an object",
        "it has no token ids; they are looked for in token_ids, output_ids, output_token_ids, completion_token_ids",
        "token_ids is no list, or an empty one",
        "token_ids is a text that is not JSON",
        outside.format(163840, 1),
        outside.format(-1, 0),
        outside.format(True, 0),
        outside.format(None, 1),
        outside.format(1.0, 0),
        "text is not a text",
    ]
    assert last == CheckedRow("line 12", 2, (), "end_of_turn", "none")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a</think>hello<|im_end|>", "whole"),
        ("a</think>hello", "without_end"),
        ("ahello", "other"),
        (None, "none"),
    ],
)
def test_how_a_text_compares(tmp_path: Path, kimi: Vocabulary, text: str | None, kind: str) -> None:
    [row] = check_samples(write(tmp_path, {"token_ids": [64, END_THINK, HELLO, END], "text": text}), kimi)
    assert row.text == kind


def test_a_text_without_turn_tokens_inside_it(tmp_path: Path, kimi: Vocabulary) -> None:
    rows = [{"token_ids": [HELLO, END, HELLO, END], "text": "hellohello"}]
    assert [row.text for row in check_samples(write(tmp_path, *rows), kimi)] == ["without_specials"]


def test_counts_by_kind_and_parquet_as_jsonl(tmp_path: Path, kimi: Vocabulary) -> None:
    rows = [
        {"token_ids": [HELLO, END], "text": "hello", "finish_reason": "stop"},
        {"token_ids": [HELL, LETTER_O, 993, 39964, 29, HELL, LETTER_O], "text": None, "finish_reason": "length"},
        {"token_ids": [163840], "text": None, "finish_reason": None},
    ]
    expected = {
        "rows": Counter(same=1, different=1, bad=1),
        "tokens": Counter(all=9, different=7),
        "differences": Counter(split=2, special=1),
        "ends": Counter(end_of_turn=1, cut=1),
        "texts": Counter(without_end=1, none=1),
    }
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "native.parquet")
    assert summary(check_samples(write(tmp_path, *rows), kimi)) == expected
    assert summary(check_samples(tmp_path / "native.parquet", kimi)) == expected


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path, kimi: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def rows(source: str) -> Any:
        for number in range(3):
            read.append(f"line {number}")
            yield f"line {number}", {"token_ids": [END]}

    monkeypatch.setattr(native_samples, "read_rows", rows)
    next(check_samples(tmp_path / "native.jsonl", kimi))
    assert read == ["line 0"]


# the verb


def test_the_verb_shows_differences_and_counts(tmp_path: Path) -> None:
    path = write(tmp_path, {"token_ids": [HELL, LETTER_O, END]}, {"token_ids": [HELLO, END], "text": "hello"})
    result = invoke("native-samples", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "line 1, id 0, split: native [12000, 78] b'hello', encoded [22931] b'hello'",
        "rows: 1 different, 1 same",
        "tokens: 5 all, 2 different",
        "differences: 1 split",
        "ends: 2 end_of_turn",
        "texts: 1 none, 1 without_end",
    ]


def test_the_verb_tells_bad_rows_and_conflicts(tmp_path: Path) -> None:
    result = invoke("native-samples", write(tmp_path, {"token_ids": ["\x1b[31m"]}))
    assert result.exit_code == 1
    assert result.stderr == "line 1: token_ids holds \\x1b[31m at 0; the vocabulary's ids are 0 to 163839\n"
    result = invoke("native-samples", write(tmp_path, {"token_ids": [HELLO, CHAS]}))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "line 1: it ends in 163533 ('chas'), but a turn ends in 163586" in result.stderr
    (tmp_path / "native.parquet").write_bytes(b"none")
    result = invoke("native-samples", tmp_path / "native.parquet")
    assert result.exit_code == 1
    assert "cannot be read as Parquet" in result.stderr


def test_the_verb_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "native.txt").write_text("")
    assert "is neither of .jsonl, .parquet" in refused(invoke("native-samples", tmp_path / "native.txt"))
    assert "does not exist" in refused(invoke("native-samples", tmp_path / "away.jsonl"))


def test_the_verb_with_another_tokenizer(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", tiny_rank_file(), tiny_table())
    result = invoke("native-samples", write(tmp_path, {"token_ids": [257, 266]}), "--tokenizer", folder)
    assert result.stdout.startswith("rows: 1 same\n"), result.output
