"""Bytes per token by kind of text, beside a second tokenizer that needs no download."""

import json
from collections.abc import Callable, Mapping

import pandas as pd
import splintr

from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import DATA

SECOND = "o200k_base"


def text_kinds() -> dict[str, str]:
    """A short text of our own for each kind, from `data/text_kinds.json`."""
    kinds: dict[str, str] = json.loads((DATA / "text_kinds.json").read_text("utf-8"))["kinds"]
    return kinds


def second_counter(name: str = SECOND) -> Callable[[str], int]:
    """How many tokens a tokenizer that splintr-rs carries makes of a text, e.g. `o200k_base` or `qwen3`."""
    tokenizer = splintr.Tokenizer.from_pretrained(name)
    return lambda text: len(tokenizer.encode_ordinary(text))


def bytes_per_token(vocabulary: Vocabulary, texts: Mapping[str, str], second: str = SECOND) -> pd.DataFrame:
    """A row a kind: bytes, tokens, bytes per token, tokens per character, and bytes per token of the second tokenizer.

    Args:
        texts: kind -> text.
    """
    count = second_counter(second)
    rows = []
    for kind, text in texts.items():
        size, tokens, others = len(text.encode("utf-8", "replace")), len(vocabulary.encode(text)), count(text)
        rows.append((kind, size, tokens, size / tokens, tokens / len(text), size / others))
    columns = ["kind", "bytes", "tokens", "bytes per token", "tokens per character", f"bytes per token, {second}"]
    return pd.DataFrame(rows, columns=columns).set_index("kind")
