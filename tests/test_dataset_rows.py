"""Rows of files and of the hub: their places, and what is told of those that cannot be parsed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers import dataset_rows
from kimi_helpers.dataset_rows import DatasetError, RowError, hub_parts, read_rows, without_nulls
from kimi_helpers.workspace import ROOT


def told(rows: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Rows with the sentence in place of the error."""
    return [(place, str(row) if isinstance(row, RowError) else row) for place, row in rows]


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


# JSON lines


def test_bad_lines_are_told_at_their_place_and_stop_no_other(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"a": 1}\r',
        b"",
        b"{",
        b'{"a": "\xff"}',
        b"[" * 100_000,
        b'{"a": "\x00"}',
        b'{"a": "\\u0000 \\ud83d"}',
        '{"a": "x\u2028y\x85z"}'.encode(),
        b"1" * 5000,
        b'{"a": 2}',
    ]
    rows = told(read_rows(write(tmp_path / "rows.jsonl", b"\n".join(lines))))
    assert [place for place, _ in rows] == [f"line {number}" for number in (1, 3, 4, 5, 6, 7, 8, 9, 10)]
    assert rows[0] == ("line 1", {"a": 1})
    assert rows[1][1].startswith("it is not JSON (Expecting property name")
    assert rows[2][1] == "it is not UTF-8 at byte 7"
    assert rows[3][1] == "it is nested too deeply"
    assert rows[4][1].startswith("it is not JSON (Invalid control character")
    assert rows[5][1] == {"a": "\0 \ud83d"}
    assert rows[6][1] == {"a": "x\u2028y\x85z"}
    assert rows[7][1].startswith("it is not JSON (Exceeds the limit")
    assert rows[8] == ("line 10", {"a": 2})


@pytest.mark.parametrize("beyond", [1, 2, 25, 100])
def test_a_row_that_is_too_long_is_passed_over_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    monkeypatch.setattr(dataset_rows, "LONGEST_ROW", 20)
    longest = b'"' + b"x" * 17 + b'"\n'
    too_long = b'"' + b"y" * (17 + beyond) + b'"\n'
    rows = told(read_rows(write(tmp_path / "rows.jsonl", longest + too_long + longest + b"z" * (20 + beyond))))
    fault = "it is longer than 20 bytes"
    assert rows == [("line 1", "x" * 17), ("line 2", fault), ("line 3", "x" * 17), ("line 4", fault)]


def test_a_file_that_is_away_or_a_folder_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("away.jsonl", "folder.jsonl", "away.csv", "folder.csv", "away.parquet", "folder.parquet"):
        with pytest.raises(DatasetError) as caught:
            list(read_rows(str(tmp_path / name)))
        assert str(caught.value).startswith(f"{tmp_path / name} cannot be read")
        assert "\n" not in str(caught.value)


# Parquet


def test_parquet_rows_come_without_the_nulls_of_other_rows(tmp_path: Path) -> None:
    written = [
        {"m": [{"role": "user", "content": "a"}], "arguments": {"city": "Oslo"}},
        {"m": [{"role": "tool", "name": "f"}], "arguments": {"days": 3}},
    ]
    pq.write_table(pa.Table.from_pylist(written), tmp_path / "rows.parquet")
    assert "None" in str(pq.read_table(tmp_path / "rows.parquet").to_pylist())  # the fault that is mended here
    assert list(read_rows(str(tmp_path / "rows.parquet"))) == [("row 1", written[0]), ("row 2", written[1])]


def test_nulls_of_lists_stay() -> None:
    assert without_nulls({"a": [1, None], "b": None, "c": [None, {"d": None}]}) == {"a": [1, None], "c": [None, {}]}


def test_a_text_of_parquet_that_is_not_utf8_spoils_its_row_alone(tmp_path: Path) -> None:
    texts = [b"row %d" % number for number in range(1, 41)]
    texts[17] = b"\xff"
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    array = pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"".join(texts))]
    )
    pq.write_table(pa.table({"text": array}), tmp_path / "rows.parquet")
    rows = told(read_rows(str(tmp_path / "rows.parquet")))
    assert rows[17] == ("row 18", "it holds bytes that are not UTF-8")
    expected = [(f"row {number}", {"text": f"row {number}"}) for number in range(1, 41)]
    assert rows[:17] + rows[18:] == expected[:17] + expected[18:]


def test_a_parquet_file_damaged_inside_tells_how_far_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"text": [os.urandom(300).hex() for _ in range(96)]})
    pq.write_table(table, path, row_group_size=32, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[start : start + 4000] = b"\xff" * 4000
    path.write_bytes(data)
    given = []
    with pytest.raises(DatasetError, match="cannot be read after row 32: "):
        given.extend(place for place, _ in read_rows(str(path)))
    (tmp_path / "none.parquet").write_bytes(b"no parquet")
    with pytest.raises(DatasetError, match="cannot be read as Parquet: "):
        list(read_rows(str(tmp_path / "none.parquet")))


# CSV


def test_csv_rows(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbfproblem,n\r\n"a, ""b""\r\nc",1\r\nd\r\ne,1,2\r\n\xff,4\r\n'
    assert told(read_rows(write(tmp_path / "rows.csv", text))) == [
        ("row 1", {"problem": 'a, "b"\r\nc', "n": "1"}),
        ("row 2", "it has more or fewer cells than the header"),
        ("row 3", "it has more or fewer cells than the header"),
        ("row 4", {"problem": "\udcff", "n": "4"}),
    ]


def test_a_broken_quote_ends_a_csv_file_with_one_sentence(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "rows.csv", b'problem\na\n"b\nc\n'))
    assert next(rows) == ("row 1", {"problem": "a"})
    with pytest.raises(DatasetError, match="cannot be read after row 1: unexpected end of data; repair"):
        next(rows)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1), min_size=1))
def test_jsonl_and_parquet_give_the_same_rows(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = [{"text": text} for text in texts]
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    jsonl = read_rows(write(folder / "rows.jsonl", lines.encode()))
    assert [row for _, row in read_rows(str(folder / "rows.parquet"))] == rows == [row for _, row in jsonl]


# the hub


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hf:a/b", ("a/b", None, "train")),
        ("hf:a/b:c", ("a/b", "c", "train")),
        ("hf:a/b:c:d", ("a/b", "c", "d")),
        ("hf:a/b::d", ("a/b", None, "d")),
        ("hf:a/b:", ("a/b", None, "train")),
    ],
)
def test_the_parts_of_a_hub_name(name: str, parts: tuple[str, str | None, str]) -> None:
    assert hub_parts(name) == parts


@pytest.mark.parametrize("name", ["hf:", "hf:a", "hf:a/", "hf:/b", "hf:a/b/c", "hf:a/b:c:d:e", "hf::a/b"])
def test_a_name_that_is_none_of_the_hub(name: str) -> None:
    with pytest.raises(DatasetError, match="write hf:org/name"):
        hub_parts(name)


def test_rows_of_the_hub_are_streamed_and_a_break_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def stream() -> Iterator[dict[str, Any]]:
        yield {"problem": "a", "tools": None}
        raise ConnectionError("the line\nis dead.")

    def load(*arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
        asked.append((arguments, options))
        return stream()

    monkeypatch.setattr(datasets, "load_dataset", load)
    rows = read_rows("hf:a/b:c:test")
    assert next(rows) == ("row 1", {"problem": "a"})
    with pytest.raises(DatasetError) as caught:
        next(rows)
    assert asked == [(("a/b", "c"), {"split": "test", "streaming": True})]
    assert str(caught.value) == (
        "a/b could not be streamed from the hub after row 1 (ConnectionError: the line is dead); check the name and"
        " the network, or name a local copy or a `:sample`."
    )


def test_the_library_itself_offline_gives_the_same_sentence() -> None:
    code = "from kimi_helpers.datasets import open_dataset\nlist(open_dataset('hf:nobody/nothing'))"
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=offline, capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "nobody/nothing could not be streamed from the hub after row 0 (" in last
    assert last.endswith("check the name and the network, or name a local copy or a `:sample`.")
