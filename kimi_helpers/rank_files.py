"""Rank files (`tiktoken.model`): where one comes from, and the proof that it is the right one.

A rank file holds a line a token: the token's bytes in base64, a blank, its rank. Kimi K2, K2-Thinking,
K2.5 and K2.6 share one file, known by its sha256 (`data/kimi_ranks.json`).
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import splintr

from kimi_helpers.workspace import DATA, cache_folder, write_whole

RANK_FILE = "tiktoken.model"
TABLE_FILE = "tokenizer_config.json"


class VocabularyError(ValueError):
    """A vocabulary that cannot be trusted, or a source that holds none; the message says what to do."""


@dataclass(frozen=True)
class KnownRanks:
    """What is known of Kimi's rank file.

    Attributes:
        sha256: hex digest of the file.
        count: number of ranks.
        sentinels: texts and the ids that the file gives under the right split pattern, and only then.
    """

    sha256: str
    count: int
    sentinels: Mapping[str, list[int]]


@cache
def kimi_ranks() -> KnownRanks:
    """The facts of Kimi's rank file, read from `data/kimi_ranks.json`."""
    facts = json.loads((DATA / "kimi_ranks.json").read_text("utf-8"))
    return KnownRanks(facts["sha256"], facts["ranks"], facts["sentinels"])


def digest(data: bytes) -> str:
    """Hex sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def parse_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """Token bytes -> rank, from the bytes of a rank file.

    Raises:
        VocabularyError: a line is not base64 and a number, or the ranks are not 0, 1, 2, ... once each.
    """
    ranks: dict[bytes, int] = {}
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise VocabularyError(
                f"{where}, line {number}: not a token in base64 and its rank; take {RANK_FILE} again from its source."
            ) from None
    if not lines:
        raise VocabularyError(f"{where}: no ranks in it; take {RANK_FILE} again from its source.")
    if sorted(ranks.values()) != list(range(len(lines))):
        raise VocabularyError(
            f"{where}: the ranks are not 0 to {len(lines) - 1}, each once; take {RANK_FILE} again from its source."
        )
    return ranks


def packaged_rank_file() -> bytes:
    """Kimi's rank file, rebuilt from the token bytes that the package splintr-rs carries.

    Only the bytes of the ranks are taken from it: its own `encode` matches other special strings.

    Raises:
        VocabularyError: the installed splintr-rs holds other ranks.
    """
    known = kimi_ranks()
    cached = _packaged_path()
    if cached.is_file() and digest(data := cached.read_bytes()) == known.sha256:
        return data
    tokenizer = splintr.Tokenizer.from_pretrained("kimi_k2")
    tokens = (tokenizer.decode_token_bytes(rank) for rank in range(known.count))
    data = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    if digest(data) != known.sha256:
        raise VocabularyError(
            "The installed splintr-rs does not hold Kimi's ranks (sha256 differs); install the version that"
            " pyproject.toml names, or give a folder that holds tiktoken.model."
        )
    write_whole(cached, data)
    return data


def packaged_rank_path() -> Path:
    """Where Kimi's rank file lies, checked, for a library that reads it from disk.

    Raises:
        VocabularyError: as `packaged_rank_file`.
    """
    packaged_rank_file()
    return _packaged_path()


def _packaged_path() -> Path:
    return cache_folder() / kimi_ranks().sha256 / RANK_FILE


def hub_folder(hub_id: str, revision: str) -> Path:
    """Where a download puts the two files of a hub repository at one commit."""
    return cache_folder() / "hub" / hub_id.replace("/", "--") / revision
