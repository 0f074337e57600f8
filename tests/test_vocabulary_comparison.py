"""Two loadings compared: packed special tokens, another model's table, transformers' own reading."""

import json
from pathlib import Path

import pytest

from kimi_helpers.vocabulary import Vocabulary, load_vocabulary
from kimi_helpers.vocabulary_comparison import (
    Loading,
    differing_ids,
    differing_texts,
    packed_loading,
    right_loading,
    transformers_loading,
)


@pytest.fixture(scope="module")
def right(kimi: Vocabulary) -> Loading:
    return right_loading(kimi)


def test_packed_ids_are_those_published(kimi: Vocabulary, right: Loading, shared_dir: Path) -> None:
    packed = packed_loading(kimi)
    published = json.loads((shared_dir / "kimi-tokenizer/fixtures/packed_wrong_ids.json").read_text("utf-8"))
    assert published
    for row in published:
        assert packed.ids[row["content"].encode()] == row["packed_wrong_id"]
        assert right.ids[row["content"].encode()] == row["right_id"]
    assert packed.encode("<think>") == [packed.ids[b"<think>"]] != right.encode("<think>")


def test_k2_and_k25_differ_in_the_slots_that_only_one_names(right: Loading) -> None:
    table = differing_ids(right_loading(load_vocabulary(format="kimi-k2")), right)
    assert list(table.index) == [163602, 163603, 163604, 163605, 163606, 163607]
    assert table.loc[163606, "first"] == b"<|reserved_token_163606|>"
    assert table.loc[163606, "second"] == b"<think>"


def test_transformers_alone_takes_another_split(kimi: Vocabulary, right: Loading) -> None:
    theirs = transformers_loading(kimi)
    assert theirs.encode("don't") == [22676, 1769]
    assert right.encode("don't") == [88709]
    assert theirs.encode("a<|im_end|>") == right.encode("a<|im_end|>")
    assert len(differing_ids(right, theirs)) == 0
    (found,) = differing_texts(right, theirs, ["hello world", "I don't know"])
    assert found.place == 1
    assert [(span.start, span.end) for span in found.spans] == [(1, 7)]


def test_texts_that_spell_other_bytes_have_no_spans() -> None:
    one = Loading("one", [b"a"], lambda text: [0] * len(text))
    two = Loading("two", [b"b"], lambda text: [0] * (len(text) + 1))
    (found,) = differing_texts(one, two, ["aa"])
    assert found.spans == ()
