"""A vocabulary from the hub, by an injected fetch: nothing here reaches the network."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kimi_helpers import rank_files
from kimi_helpers.rank_files import VocabularyError, packaged_rank_file
from kimi_helpers.vocabulary import SpecialToken, load_vocabulary, special_table
from kimi_helpers.vocabulary_download import download_vocabulary
from tests.conftest import tiny_rank_file

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def config(table: Sequence[SpecialToken]) -> bytes:
    decoder = {str(token.id): {"content": token.text, "special": token.special} for token in table}
    return json.dumps({"added_tokens_decoder": decoder}).encode()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test alone."""
    monkeypatch.setattr(rank_files, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_a_table_that_fails_its_check_leaves_nothing(own_cache: Path) -> None:
    renumbered = [SpecialToken("<|im_end|>", 163584, True)]

    def fetch(hub_id: str, name: str, revision: str) -> bytes:
        return packaged_rank_file() if name == "tiktoken.model" else config(renumbered)

    with pytest.raises(VocabularyError, match="renumbered"):
        download_vocabulary("some/model", COMMIT, fetch)
    assert not (own_cache / "hub").exists()


def test_download_writes_both_files_of_the_commit(own_cache: Path) -> None:
    asked = []

    def fetch(hub_id: str, name: str, revision: str) -> bytes:
        asked.append((hub_id, name, revision))
        return packaged_rank_file() if name == "tiktoken.model" else config(special_table("kimi-k2.5"))

    folder = download_vocabulary("moonshotai/Kimi-K2.5", COMMIT, fetch)
    assert folder == own_cache / "hub" / "moonshotai--Kimi-K2.5" / COMMIT
    assert {path.name for path in folder.iterdir()} == {"tiktoken.model", "tokenizer_config.json"}
    assert {revision for _, _, revision in asked} == {COMMIT}
    assert load_vocabulary("moonshotai/Kimi-K2.5").is_kimi


def test_download_refuses_other_ranks_and_writes_nothing(own_cache: Path) -> None:
    with pytest.raises(VocabularyError, match="not Kimi's"):
        download_vocabulary("some/model", COMMIT, lambda *_: tiny_rank_file())
    assert not own_cache.exists()


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:12], COMMIT.upper()])
def test_download_wants_a_full_commit(revision: str) -> None:
    with pytest.raises(VocabularyError, match="40 hex digits"):
        download_vocabulary("moonshotai/Kimi-K2.5", revision, lambda *_: b"")
