"""A byte-level tokenizer.json as a vocabulary, and ChatML: against the library and the model's own template."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from kimi_helpers import smollm2
from kimi_helpers.formats import FORMATS, PromptError
from kimi_helpers.rank_files import VocabularyError
from kimi_helpers.tokenizer_json import byte_characters
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary


@pytest.fixture(scope="session")
def smollm() -> Vocabulary:
    """SmolLM2's vocabulary."""
    if not smollm2.is_available():
        pytest.skip(f"SmolLM2 is not installed: {smollm2.HOW}")
    return load_vocabulary(smollm2.smollm2_folder())


def tiny_file() -> dict[str, Any]:
    """All bytes, `in`, and two special tokens in front."""
    letters = {char: 2 + place for place, char in enumerate(byte_characters())}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "decoder": None,
        "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "added_tokens": [
            {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for id, text in enumerate(["<|im_start|>", "<|im_end|>"])
        ],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {"<|im_start|>": 0, "<|im_end|>": 1} | letters | {"in": 258}, "merges": [["i", "n"]]},
    }  # fmt: skip


def folder_of(file: dict[str, Any], folder: Path) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(file), "utf-8")
    return folder


@pytest.fixture
def tiny_json(tmp_path: Path) -> Vocabulary:
    return load_vocabulary(folder_of(tiny_file(), tmp_path))


def test_the_layout_of_a_small_file(tiny_json: Vocabulary) -> None:
    assert (tiny_json.ranks, tiny_json.size, tiny_json.special_ids) == (257, 259, {0, 1})
    assert not tiny_json.is_kimi
    assert tiny_json.encode("in<|im_end|>", specials=True) == [258, 1]
    assert 1 not in tiny_json.encode("in<|im_end|>")
    assert tiny_json.decode(tiny_json.encode("in<|im_end|>")) == "in<|im_end|>"
    assert tiny_json.token_bytes(1) == b"<|im_end|>"
    assert tiny_json.id_of_bytes(b"in") == 258
    assert tiny_json.id_of_bytes(b"nope") is None
    with pytest.raises(ValueError, match="outside the vocabulary"):
        tiny_json.decode([259])


@given(st.text())
@settings(deadline=None)
def test_real_ids_are_the_library_s_and_spell_the_text(smollm: Vocabulary, text: str) -> None:
    library = Tokenizer.from_file(str(smollm2.smollm2_folder() / "tokenizer.json"))
    ids = smollm.encode(text)
    if not any(special in text for special in smollm.named):
        assert ids == library.encode(text, add_special_tokens=False).ids
    if all(smollm.id_of_bytes(bytes([byte])) is not None for byte in text.encode()):
        assert smollm.decode_bytes(ids) == text.encode()
    assert smollm.special_ids.isdisjoint(ids)


def test_a_digit_is_a_token_of_its_own(smollm: Vocabulary) -> None:
    assert [smollm.token_bytes(id) for id in smollm.encode("in 2024")] == [b"in", b" ", b"2", b"0", b"2", b"4"]


CONVERSATION = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello. <b>"},
    {"role": "user", "content": "Why?\n"},
]


@pytest.mark.parametrize("messages", [CONVERSATION, [{"role": "system", "content": "Be brief."}, *CONVERSATION]])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_a_prompt_is_what_the_model_s_own_template_gives(
    smollm: Vocabulary, messages: list[dict[str, str]], add_generation_prompt: bool
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2.smollm2_folder())
    wanted = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, return_dict=False)
    ids = FORMATS["chatml"].prompt_ids(smollm, messages, add_generation_prompt=add_generation_prompt)
    assert ids == wanted


def test_special_tokens_in_a_message_stay_text(tiny_json: Vocabulary) -> None:
    ids = FORMATS["chatml"].prompt_ids(tiny_json, [{"role": "user", "content": "<|im_end|>"}])
    assert ids.count(tiny_json.special_id("<|im_end|>")) == 2  # of the system turn and of the user's


def test_what_chatml_has_no_layout_for_is_told(tiny_json: Vocabulary) -> None:
    with pytest.raises(PromptError, match="chatml has no layout for tools"):
        FORMATS["chatml"].prompt_ids(tiny_json, CONVERSATION, tools=[{"type": "function"}])
    calls = [{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}]
    with pytest.raises(PromptError, match="message 0: ChatML has no layout for tool calls"):
        FORMATS["chatml"].prompt_ids(tiny_json, calls)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": {"type": "Unigram", "vocab": {}}}, "is not byte-level BPE"),
        ({"normalizer": {"type": "NFC"}}, "changes the text before it encodes"),
        (
            {"added_tokens": [{"id": 9, "content": "<x>", "special": True}]},
            "is not a tokenizer's",
        ),
        ({"model": {**tiny_file()["model"], "vocab": {"a": 7}, "merges": []}}, "not 0 to 2, each once|own id"),
        ({"added_tokens": 3}, "is not a tokenizer's"),
        (
            {"model": {**tiny_file()["model"], "vocab": {"<|im_start|>": 0, "<|im_end|>": 1, "日": 2}, "merges": []}},
            "token 2 holds '日', which stands for no byte",
        ),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(VocabularyError, match=told):
        load_vocabulary(folder_of(tiny_file() | change, tmp_path))
