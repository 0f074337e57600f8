"""Many replies at once: the rows of one at a time, in order, in a file that is whole or not there."""

import json
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_helpers.bulk_reconstruction import (
    SCHEMA,
    BulkSettings,
    grade_table,
    local_workers,
    parse_many,
    reconstruct_many,
)
from kimi_helpers.formats import FORMATS
from kimi_helpers.graded_rows import count_grades, grade_replies, grades_by_provider
from kimi_helpers.profiles import read_profiles
from kimi_helpers.reply_sources import read_tables
from kimi_helpers.reply_tables import RawReply, parse_raw, parsed_table, raw_table, storable
from kimi_helpers.vocabulary import load_vocabulary, special_tables
from kimi_helpers.workspace import DATA
from tests.conftest import tiny_rank_file, tiny_table, write_folder
from tests.loopback_replies import loopback_replies
from tests.reply_samples import CALL, chunk, completion, stream

PROFILES = read_profiles(DATA / "profiles" / "loopback.toml")
SETTINGS = BulkSettings(PROFILES)


def one_by_one(replies: Iterable[RawReply], shared: BulkSettings = SETTINGS) -> list[dict[str, Any]]:
    """The rows of `grade_replies`, as a table gives them back."""
    graded = grade_replies(
        map(parse_raw, replies),
        lambda layout: load_vocabulary(shared.tokenizer, layout.name),
        shared.profiles,
        shared.format,
    )
    return [{name: _as_stored(row.plain()[name]) for name in SCHEMA.names} for row in graded]


def _as_stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return storable(value) if isinstance(value, str) else value


PIECES = st.lists(
    st.sampled_from([" ", "\n", "word", " the", "中文", "é", "7", "</think>", "<|im_end|>", "[EOS]", "\ufffd", "{}"])
    | st.text(st.characters(), max_size=3),
    max_size=6,
).map("".join)
HOSTS = st.sampled_from([*PROFILES, "Nobody"])


@st.composite
def exchanges(draw: st.DrawFn) -> RawReply:
    message: dict[str, Any] = {"reasoning": draw(st.none() | PIECES), "content": draw(st.none() | PIECES)}
    if draw(st.booleans()):
        arguments = draw(st.sampled_from(["{}", '{"a": 1}', '{"a":1}', ""]) | PIECES)
        function = {"name": "f", "arguments": arguments}
        message["tool_calls"] = [{**CALL, "index": 0, "function": function, "id": draw(st.sampled_from(["f:0", "x"]))}]
    finish = draw(st.sampled_from(["stop", "tool_calls", "length"]))
    usage = draw(st.none() | st.fixed_dictionaries({"completion_tokens": st.integers(0, 40)}))
    if draw(st.booleans()):
        # a count that the plain reading of K2.5 makes, or just misses: texts, `</think>` and the end token
        said = sum(len(load_vocabulary().encode(message[name] or "")) for name in ("reasoning", "content"))
        usage = {"completion_tokens": said + draw(st.sampled_from([2, 2, 2, 1, 3])), "prompt_tokens": 9}
    model = draw(st.sampled_from([f"moonshotai/{name}" for name in special_tables()] + ["someone/else", "\ud800"]))
    top = {"provider": draw(HOSTS), "model": model, "usage": usage}
    if draw(st.booleans()):
        body = completion(message, finish, **top)
    else:
        body = stream(chunk(message, **top), chunk({"content": draw(PIECES)}, finish, **top))
    return RawReply("a", draw(st.sampled_from([None, b"{}", b'{"messages": [{"role": "user"}]}'])), 200, body)


@given(st.lists(exchanges(), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_replies_have_the_rows_of_one_at_a_time(made: list[RawReply]) -> None:
    expected, table = one_by_one(made), raw_table(made)
    assert grade_table(table, SETTINGS).to_pylist() == expected
    assert grade_table(parsed_table(table), SETTINGS).to_pylist() == expected


def test_so_have_those_of_every_loopback_host() -> None:
    replies = loopback_replies()
    expected, table = one_by_one(replies), raw_table(replies)
    assert {row["host"] for row in expected} == set(PROFILES)
    assert {row["transport"] for row in expected} == {"json", "sse"}
    graded = grade_table(table, SETTINGS)
    assert graded.schema == SCHEMA
    assert graded.to_pylist() == expected
    assert grade_table(parsed_table(table), SETTINGS).to_pylist() == expected


def test_a_format_and_a_tokenizer_hold_for_all_replies(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", tiny_rank_file(), tiny_table())
    shared = BulkSettings(PROFILES, str(folder), FORMATS["kimi-k2-thinking"])
    replies = loopback_replies()[:12]
    graded = grade_table(raw_table(replies), shared).to_pylist()
    assert {row["format"] for row in graded} == {"kimi-k2-thinking"}
    assert graded == one_by_one(replies, shared)


def test_no_replies_make_an_empty_file(tmp_path: Path) -> None:
    assert grade_table(raw_table([]), SETTINGS) == SCHEMA.empty_table()
    assert reconstruct_many([], SETTINGS, tmp_path / "rows.parquet") == {}
    assert pq.read_table(tmp_path / "rows.parquet").schema == SCHEMA


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_come_in_order_from_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    replies, out = loopback_replies(), tmp_path / "made" / "rows.parquet"
    source, parsed = tmp_path / "raw.parquet", tmp_path / "parsed.parquet"
    pq.write_table(raw_table(replies), source)
    expected = one_by_one(replies)
    with local_workers(workers) as each:
        parse_many(read_tables([source], 50), parsed, each)
        for path in (source, parsed):
            grades = reconstruct_many(read_tables([path], 50), SETTINGS, out, each)
            assert pq.read_table(out).to_pylist() == expected
    rows = list(grade_replies(map(parse_raw, replies), lambda f: load_vocabulary(format=f.name), PROFILES))
    assert grades == grades_by_provider(rows)
    assert sum(sum(of_host.values()) for of_host in grades.values()) == sum(count_grades(rows).values())
    assert [path.name for path in out.parent.iterdir()] == ["rows.parquet"]


def test_the_file_says_how_it_was_made(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    reconstruct_many([raw_table(loopback_replies()[:2])], SETTINGS, out)
    told = json.loads(pq.read_metadata(out).metadata[b"kimi_helpers"])
    assert told["version"] == version("kimi-helpers")
    assert told["profiles"]["Loopback Think In Content"] == ["loopback, think in content"]
    assert told["profiles"].keys() == PROFILES.keys()
    assert told["residual"].endswith("no host returned ids here, by which its rate could be measured.")


def test_the_file_says_how_often_known_ids_are_split_otherwise(tmp_path: Path) -> None:
    """` foxes` is ` fox` and `es` to the tokenizer; ` fo` and `xes` are as many; `hello` is one token."""
    out, kimi = tmp_path / "rows.parquet", load_vocabulary()
    splits = [([b"hello"], "canonical"), ([b"h", b"ello"], "other length"), ([b" fo", b"xes"], "same length")]
    made = []
    for pieces, split in splits:
        ids = [kimi.id_of_bytes(piece) for piece in pieces]
        text = b"".join(pieces).decode()
        assert (len(kimi.encode(text)) == len(ids)) == (split != "other length")
        told = {"token_ids": [*ids, 163586]}
        made.append(completion({"content": text}, "stop", told, provider="V", model="moonshotai/kimi-k2"))
    reconstruct_many([raw_table(RawReply("a", None, 200, body) for body in made)], SETTINGS, out)
    rows = pq.read_table(out).to_pylist()
    assert {row["grade"] for row in rows} == {"engine_ids"}
    assert [row["split"] for row in rows] == [split for _, split in splits]
    told_of_file = json.loads(pq.read_metadata(out).metadata[b"kimi_helpers"])
    assert told_of_file["residual"].endswith("of 3 replies whose ids the host returned, 1 are split so.")


def test_a_run_that_breaks_off_leaves_the_earlier_file(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    reconstruct_many([raw_table(loopback_replies()[:2])], SETTINGS, out)
    before = out.read_bytes()

    def broken() -> Iterator[pa.Table]:
        yield raw_table(loopback_replies()[:3])
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        reconstruct_many(broken(), SETTINGS, out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def same(table: pa.Table) -> pa.Table:
    return table


def test_few_tables_are_under_way_at_a_time() -> None:
    taken = []

    def numbers() -> Iterator[pa.Table]:
        for number in range(40):
            taken.append(number)
            yield pa.table({"number": [number]})

    with local_workers(2) as each:
        for done, table in enumerate(each(same, numbers())):
            assert table.column("number").to_pylist() == [done]
            assert len(taken) <= done + 6
    assert len(taken) == 40
