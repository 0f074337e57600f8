"""The vocabulary: encode, decode, chunking, the layout of slots, and the checks at load."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers import vocabulary as vocabulary_module
from kimi_helpers.rank_files import VocabularyError, packaged_rank_file
from kimi_helpers.vocabulary import (
    KIMI_PATTERN,
    SpecialToken,
    UnknownSpecialToken,
    Vocabulary,
    build_vocabulary,
    chunk_borders,
    load_vocabulary,
    pieces,
    special_table,
    special_tables,
)
from tests.conftest import TINY_TEXTS, tiny_rank_file, tiny_table, write_folder


def oracle_rows(shared: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((shared / "kimi-tokenizer/fixtures/oracle.json").read_text("utf-8"))[
        "rows"
    ]
    return rows


def test_oracle_ids_with_and_without_specials(kimi: Vocabulary, shared_dir: Path) -> None:
    rows = oracle_rows(shared_dir)
    assert len(rows) == 144
    for row in rows:
        text = str(row["text"])
        assert kimi.encode(text, specials=True) == row["ids"], text
        assert kimi.encode(text) == row["ids_no_special"], text


def test_published_folder_equals_the_packaged_vocabulary(kimi: Vocabulary, shared_dir: Path) -> None:
    published = load_vocabulary(shared_dir / "kimi-tokenizer")
    assert published.is_kimi
    assert published.named == kimi.named
    assert published.sha256 == kimi.sha256


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("don't", [88709]),
        ("hello world", [22931, 2695]),
        ("中\n文", [435, 198, 908]),
        ("<think>", [27, 39964, 29]),
        ("chas", [163533]),
    ],
)
def test_known_ids(kimi: Vocabulary, text: str, ids: list[int]) -> None:
    assert kimi.encode(text) == ids
    assert kimi.decode(ids) == text


def test_special_slots(kimi: Vocabulary) -> None:
    assert kimi.is_kimi
    assert (kimi.ranks, kimi.size) == (163584, 163840)
    assert kimi.special_id("<|im_end|>") == 163586
    assert kimi.encode("a<|im_end|>b", specials=True)[1] == 163586
    assert kimi.token_bytes(163700) == b"<|reserved_token_163700|>"
    assert kimi.special_ids == set(range(163584, 163840))
    with pytest.raises(UnknownSpecialToken, match="no special token '<nothing>'"):
        kimi.special_id("<nothing>")


def test_special_tables_of_the_four_formats() -> None:
    assert special_tables() == ["kimi-k2", "kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6"]
    k2 = load_vocabulary(format="kimi-k2")
    assert "<think>" not in k2.named
    assert k2.encode("<think>", specials=True) == [27, 39964, 29]
    assert k2.decode([163606]) == "<|reserved_token_163606|>"
    assert load_vocabulary(format="kimi-k2-thinking").special_id("</think>") == 163607
    kept = {token.text for token in special_table("kimi-k2.5") if not token.special}
    assert kept == {
        "<think>",
        "</think>",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    }
    with pytest.raises(VocabularyError, match="no special table 'kimi-k9'"):
        load_vocabulary(format="kimi-k9")


def test_tiny_vocabulary_proves_nothing_is_hard_coded(tiny: Vocabulary) -> None:
    assert not tiny.is_kimi
    assert (tiny.ranks, tiny.size) == (260, 516)
    assert tiny.encode("the thing") == [257, 32, 256, 259]
    assert tiny.encode("<think>the</think>", specials=True) == [260 + 36, 257, 260 + 39]
    assert [tiny.special_id(text) for text in TINY_TEXTS] == list(range(260, 302, 3))
    assert tiny.token_bytes(261) == b"<|reserved_token_261|>"
    assert tiny.decode([260 + 36, 0xE4, 0xB8, 0xAD]) == "<think>中"


def test_decode_of_lost_bytes_and_wrong_ids(kimi: Vocabulary, tiny: Vocabulary) -> None:
    assert tiny.decode([0xE4, 0xB8]) == "\ufffd"
    assert tiny.decode_bytes([0xE4, 0xB8]) == b"\xe4\xb8"
    for wrong in (-1, 163840):
        with pytest.raises(ValueError, match=f"token id {wrong} is outside"):
            kimi.decode([0, wrong])


@given(st.text())
def test_decode_undoes_encode(text: str) -> None:
    kimi = load_vocabulary()
    assert kimi.decode_bytes(kimi.encode(text)) == text.encode()
    assert kimi.special_ids.isdisjoint(kimi.encode(text))


def test_every_ordinary_id_has_bytes_of_its_own(kimi: Vocabulary) -> None:
    assert all(kimi.id_of_bytes(kimi.token_bytes(id)) == id for id in range(0, kimi.size, 97))
    assert kimi.id_of_bytes(b"no single token has these bytes") is None


def naive_borders(text: str) -> list[int]:
    """The official rule, a character at a time: the oracle of `chunk_borders`."""
    borders = []
    for start in range(0, len(text), vocabulary_module.SLICE_CHARS):
        borders += [start] if start else []
        length, blank = 0, None
        for place in range(start, min(start + vocabulary_module.SLICE_CHARS, len(text))):
            if text[place].isspace() == blank:
                length += 1
            else:
                length, blank = 1, text[place].isspace()
            if length > vocabulary_module.RUN_CHARS:
                borders.append(place)
                length = 1
    return borders


@given(st.lists(st.tuples(st.sampled_from(["a", " ", "中", "\n", "\u3000", "\x1c", "\u200b"]), st.integers(1, 40))))
def test_chunk_borders_follow_the_official_rule(runs: list[tuple[str, int]]) -> None:
    text = "".join(char * count for char, count in runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary_module, "SLICE_CHARS", 50)
        patch.setattr(vocabulary_module, "RUN_CHARS", 7)
        borders = chunk_borders(text)
        assert borders == naive_borders(text)
    assert "".join(pieces(text, borders)) == text


def test_chunking_changes_ids_and_the_unchunked_form_does_not(kimi: Vocabulary) -> None:
    text = "a" * 24_999 + "<|im_end|>"
    assert kimi.encode(text, specials=True)[-6:] == [27, 91, 348, 11129, 91, 29]
    assert kimi.encode_unchunked(text, specials=True)[-1] == 163586
    across = "a b " * 99_999 + "xxx" + "<|im_end|>"
    assert 163586 not in kimi.encode(across, specials=True)
    assert 163586 in kimi.encode_unchunked(across, specials=True)


def test_wild_text_is_encoded_or_refused_in_a_sentence(kimi: Vocabulary) -> None:
    assert kimi.decode_bytes(kimi.encode(" " * 1_000_001 + "a")) == b" " * 1_000_001 + b"a"
    with pytest.raises(ValueError, match="use encode, which cuts"):
        kimi.encode_unchunked(" " * 1_000_001)
    assert kimi.decode(kimi.encode("\x00\ud800x")) == "\x00\ufffdx"


def test_a_packed_table_is_refused(shared_dir: Path, tmp_path: Path) -> None:
    packed = json.loads((shared_dir / "kimi-tokenizer/fixtures/packed_wrong_ids.json").read_text("utf-8"))
    table = [SpecialToken(row["content"], row["packed_wrong_id"], False) for row in packed]
    folder = write_folder(tmp_path / "packed", packaged_rank_file(), table)
    with pytest.raises(VocabularyError, match=r"<\|start_header_id\|> has id 163589, but it is 163590 .* packed"):
        load_vocabulary(folder)


def test_a_renumbered_table_is_refused() -> None:
    table = [SpecialToken("<|im_end|>", 163584, True), SpecialToken("[BOS]", 163586, True)]
    with pytest.raises(VocabularyError, match="renumbered"):
        build_vocabulary(packaged_rank_file(), table, "renumbered")


def test_a_wrong_split_pattern_is_refused() -> None:
    cl100k = KIMI_PATTERN.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "")
    with pytest.raises(VocabularyError, match=r"\"don't\" encodes to .* not \[88709\]: the split pattern"):
        build_vocabulary(packaged_rank_file(), special_table("kimi-k2.5"), "wrong", pattern=cl100k)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ([SpecialToken("<think>", 259, False)], "outside the 256 special slots"),
        ([SpecialToken("<think>", 516, False)], "outside the 256 special slots"),
        ([SpecialToken("<a>", 260, False), SpecialToken("<a>", 261, False)], "share a text or an id"),
        ([SpecialToken("<a>", 260, False), SpecialToken("<b>", 260, False)], "share a text or an id"),
        ([SpecialToken("the", 260, False)], "is an ordinary token too"),
        ([SpecialToken("", 260, False)], "has no text"),
    ],
)
def test_a_wrong_table_is_refused(table: list[SpecialToken], fault: str) -> None:
    with pytest.raises(VocabularyError, match=fault):
        build_vocabulary(tiny_rank_file(), table, "tiny")


def test_folder_and_hub_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "tiny", tiny_rank_file(), tiny_table())
    assert load_vocabulary(folder).special_id("</think>") == 260 + 39
    monkeypatch.setattr("kimi_helpers.rank_files.cache_folder", lambda: tmp_path / "cache")
    with pytest.raises(VocabularyError, match="vocabulary download some/model"):
        load_vocabulary("some/model")
    first = write_folder(tmp_path / "cache/hub/some--model" / ("a" * 40), tiny_rank_file(), tiny_table())
    assert load_vocabulary("some/model").named.keys() == set(TINY_TEXTS)
    write_folder(first.with_name("b" * 40), tiny_rank_file(), tiny_table())
    with pytest.raises(VocabularyError, match="downloaded at 2 commits"):
        load_vocabulary("some/model")


@pytest.mark.parametrize("missing", ["tiktoken.model", "tokenizer_config.json"])
def test_an_incomplete_folder_is_refused(tmp_path: Path, missing: str) -> None:
    folder = write_folder(tmp_path, tiny_rank_file(), tiny_table())
    (folder / missing).unlink()
    with pytest.raises(VocabularyError, match=f"{missing} is missing"):
        load_vocabulary(folder)


@pytest.mark.parametrize("config", [b"", b"[]", b"{}", b'{"added_tokens_decoder": {"x": {}}}', b"\xff"])
def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path, config: bytes) -> None:
    folder = write_folder(tmp_path, tiny_rank_file(), tiny_table())
    (folder / "tokenizer_config.json").write_bytes(config)
    with pytest.raises(VocabularyError, match="no added_tokens_decoder"):
        load_vocabulary(folder)


def test_no_such_source() -> None:
    with pytest.raises(VocabularyError, match="no such folder"):
        load_vocabulary("no-such-folder")
