"""Samples of real text."""

import gzip
from pathlib import Path

import pytest

from kimi_helpers.real_texts import TextsError, sample_texts


def test_a_folder_is_read_and_what_is_no_text_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha" * 10)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"beta"))
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "d.png").write_text("not asked for")
    (tmp_path / "e.gz").write_bytes(b"\x1f\x8bbroken")
    assert list(sample_texts(tmp_path, 9, longest=8).values()) == ["alphaalp", "beta"]
    assert len(sample_texts(tmp_path, 1)) == 1


def test_lines_and_paragraphs(tmp_path: Path) -> None:
    lines = tmp_path / "x.jsonl"
    lines.write_text('"one"\n{"text": "two"}\n', "utf-8")
    assert list(sample_texts(lines, 9).values()) == ["one", "two"]
    plain = tmp_path / "x.txt"
    plain.write_text("one\nline\n\n\ntwo\n", "utf-8")
    assert [text.strip() for text in sample_texts(plain, 9).values()] == ["one\nline", "two"]
    lines.write_text("{}\n", "utf-8")
    with pytest.raises(TextsError, match="line 1: neither"):
        sample_texts(lines, 9)


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TextsError, match="no such file"):
        sample_texts(tmp_path / "none", 9)
    with pytest.raises(TextsError, match="no text in it"):
        sample_texts(tmp_path, 9)


def test_there_are_texts_by_default() -> None:
    assert len(sample_texts(None, 5)) == 5
