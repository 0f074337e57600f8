"""Fixtures that several test modules use."""

import json
from base64 import b64encode
from pathlib import Path

import pytest

from kimi_helpers.vocabulary import SpecialToken, Vocabulary, build_vocabulary, load_vocabulary

SHARED = Path(__file__).resolve().parents[2] / "shared"

TINY_TEXTS = (
    "[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<think>", "</think>",
)  # fmt: skip


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real test data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this test needs the real fixtures that lie there")
    return SHARED


@pytest.fixture(scope="session")
def kimi() -> Vocabulary:
    """The real vocabulary with K2.5's special table, from the installed package."""
    return load_vocabulary()


def tiny_rank_file() -> bytes:
    """A rank file of 260 ranks: the bytes, then four merges that build `the`, `ing`, ` the`."""
    tokens = [bytes([value]) for value in range(256)] + [b"th", b"the", b"in", b"ing"]
    return b"".join(b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def tiny_table() -> list[SpecialToken]:
    """Special tokens at every third slot after the 260 ranks: nothing where the real table has it."""
    return [SpecialToken(text, 260 + 3 * place, "im_" in text) for place, text in enumerate(TINY_TEXTS)]


@pytest.fixture(scope="session")
def tiny() -> Vocabulary:
    """A vocabulary of Kimi's layout with other ranks, other ids and another size."""
    return build_vocabulary(tiny_rank_file(), tiny_table(), "tiny")


def write_folder(folder: Path, rank_file: bytes, table: list[SpecialToken]) -> Path:
    """A source folder as a model repository has it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiktoken.model").write_bytes(rank_file)
    decoder = {str(token.id): {"content": token.text, "special": token.special} for token in table}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}), "utf-8")
    return folder
