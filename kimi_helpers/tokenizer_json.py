"""A byte-level `tokenizer.json` (SmolLM2 and other models of GPT-2's kind) as an encoding with tiktoken's methods.

The library tokenizers encodes. What is added here are the bytes of each token: in such a file a token is spelled with
one printable character a byte, GPT-2's table.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from tokenizers import Tokenizer

from kimi_helpers.rank_files import VocabularyError

JSON_FILE = "tokenizer.json"


def byte_characters() -> dict[str, int]:
    """GPT-2's table: the character that stands for each byte. Printable bytes stand for themselves, the rest follow."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


class JsonEncoding:
    """The methods of `tiktoken.Encoding` that a vocabulary uses, over a `tokenizer.json`."""

    def __init__(self, plain: Tokenizer, special: Tokenizer, tokens: Sequence[bytes], ordinary: frozenset[int]) -> None:
        """Take the tokenizer without and with special tokens, the bytes of each id, and the ids of ordinary tokens."""
        self.count = len(tokens)
        self._plain, self._special, self._tokens = plain, special, tokens
        self._ids = {token: id for id, token in enumerate(tokens) if id in ordinary}
        self._ids |= {token: id for id, token in enumerate(tokens) if id not in ordinary}

    def encode(self, text: str, *, allowed_special: Literal["all"]) -> list[int]:
        """Token ids; the spelling of a special token gives that token."""
        ids: list[int] = self._special.encode(_utf8(text), add_special_tokens=False).ids
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """Token ids, all text being ordinary. Where a vocabulary lacks a byte (SmolLM2's does), it is dropped."""
        ids: list[int] = self._plain.encode(_utf8(text), add_special_tokens=False).ids
        return ids

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids."""
        return b"".join(self._tokens[id] for id in ids)

    def decode_tokens_bytes(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each id."""
        return [self._tokens[id] for id in ids]

    def encode_single_token(self, token: bytes) -> int:
        """The id of the token with these bytes.

        Raises:
            KeyError: there is none.
        """
        return self._ids[token]


def _utf8(text: str) -> str:
    """A lone surrogate becomes U+FFFD, as tiktoken does; the library would refuse it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_json(data: bytes, where: str) -> tuple[JsonEncoding, dict[str, tuple[int, bool]]]:
    """The encoding of a `tokenizer.json`, and its special tokens: text -> id, and whether it is `special`.

    Raises:
        VocabularyError: it is not byte-level BPE, it changes the text before it encodes, or ids are missing.
    """
    try:
        file = json.loads(data)
        tokens, added = file["model"]["vocab"], file["added_tokens"]
        if file["model"]["type"] != "BPE" or "ByteLevel" not in json.dumps(file["pre_tokenizer"]):
            raise VocabularyError(
                f"{where}: {JSON_FILE} is not byte-level BPE; only such and tiktoken.model can be used."
            )
        if file["normalizer"] is not None or '"add_prefix_space": true' in json.dumps(file["pre_tokenizer"]):
            raise VocabularyError(f"{where}: {JSON_FILE} changes the text before it encodes; its ids prove no text.")
        specials = {row["content"]: (int(row["id"]), bool(row["special"])) for row in added}
        plain = Tokenizer.from_str(json.dumps(file | {"added_tokens": [], "post_processor": None}))
        special = Tokenizer.from_str(json.dumps(file | {"post_processor": None}))
    except VocabularyError:
        raise
    except Exception:  # the library raises no narrower one
        raise VocabularyError(f"{where}: {JSON_FILE} is not a tokenizer's; take it again from its source.") from None
    if wrong := [text for text, (id, _) in specials.items() if special.token_to_id(text) != id]:
        raise VocabularyError(f"{where}: {wrong[0]} does not get its own id from {JSON_FILE}; take it from its source.")
    ids = {**tokens, **{text: id for text, (id, _) in specials.items()}}
    if sorted(ids.values()) != list(range(len(ids))):
        raise VocabularyError(f"{where}: the ids of {JSON_FILE} are not 0 to {len(ids) - 1}, each once.")
    return JsonEncoding(plain, special, _bytes_of(ids, specials, where), _ordinary(ids, specials)), specials


def _ordinary(ids: dict[str, int], specials: dict[str, Any]) -> frozenset[int]:
    return frozenset(id for text, id in ids.items() if text not in specials)


def _bytes_of(ids: dict[str, int], specials: dict[str, Any], where: str) -> list[bytes]:
    table = byte_characters()
    spelled: dict[int, bytes] = {}
    for text, id in ids.items():
        try:
            spelled[id] = text.encode() if text in specials else bytes(table[char] for char in text)
        except KeyError as error:
            raise VocabularyError(f"{where}: token {id} holds {error.args[0]!r}, which stands for no byte.") from None
    return [spelled[id] for id in range(len(spelled))]
