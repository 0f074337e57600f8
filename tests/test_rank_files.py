"""Rank files: parsing, rebuilding from the package, the hub, and writing whole files."""

import hashlib
from base64 import b64encode
from pathlib import Path

import pytest

from kimi_helpers import rank_files
from kimi_helpers.rank_files import (
    VocabularyError,
    packaged_rank_file,
    packaged_rank_path,
    parse_ranks,
)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test alone."""
    monkeypatch.setattr(rank_files, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_parse_ranks_reads_token_and_rank() -> None:
    assert parse_ranks(b64encode(b"\xe4\xb8") + b" 0\n" + b64encode(b" the") + b" 1\n", "f") == {
        b"\xe4\xb8": 0,
        b" the": 1,
    }


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"IQ== 0\nnot-base64! 1\n", "line 2"),
        (b"IQ== zero\n", "line 1"),
        (b"IQ==\n", "line 1"),
        (b"IQ== 0\nIg== 2\n", "ranks are not 0 to 1"),
        (b"IQ== 0\nIQ== 1\n", "ranks are not 0 to 1"),
        (b"", "no ranks"),
    ],
)
def test_parse_ranks_refuses_with_the_place(data: bytes, fault: str) -> None:
    with pytest.raises(VocabularyError, match=fault):
        parse_ranks(data, "tiktoken.model")


def test_packaged_rank_file_is_the_real_one(own_cache: Path) -> None:
    data = packaged_rank_file()
    assert len(data) == 2_795_286
    assert hashlib.sha256(data).hexdigest() == "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103"
    cached = list(own_cache.rglob("tiktoken.model"))
    assert [path.read_bytes() for path in cached] == [data]


def test_a_damaged_cache_is_made_again(own_cache: Path) -> None:
    data = packaged_rank_file()
    cached = next(own_cache.rglob("tiktoken.model"))
    cached.write_bytes(data[:-100])
    assert packaged_rank_file() == data
    assert cached.read_bytes() == data


def test_packaged_rank_path_leads_to_the_checked_file(own_cache: Path) -> None:
    path = packaged_rank_path()
    assert path.is_relative_to(own_cache)
    path.write_bytes(b"damaged")
    assert packaged_rank_path() == path
    assert path.read_bytes() == packaged_rank_file()


def test_packaged_rank_file_equals_the_published_one(shared_dir: Path) -> None:
    assert packaged_rank_file() == (shared_dir / "kimi-tokenizer" / "tiktoken.model").read_bytes()
