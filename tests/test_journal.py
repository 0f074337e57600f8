"""Tests of the journal."""

import json
import random
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.journal import (
    Exchange,
    Journal,
    JournalError,
    RunRecord,
    Totals,
    exchange_key,
    find_asked,
    read_journal,
    read_runs,
    read_settings,
    read_totals,
)
from kimi_helpers.openrouter import Transfer

SETTINGS = {"dataset": "d", "model": "m", "temperature": 1.0, "seed": None}


def exchange(key: str = "k", failure: str | None = None, body: bytes = b"{}") -> Exchange:
    transfer = Transfer(
        request=b'{"model":"m"}',
        status=200,
        headers={"content-type": "application/json"},
        body=body,
        chunks=((2, 1500),),
        started="2026-11-29T12:00:00+00:00",
        seconds=0.25,
        transport_error=None,
    )
    return Exchange(key, "d", "p", "chutes", "m", 0, failure, transfer)


transfers = st.builds(
    Transfer,
    request=st.binary(),
    status=st.none() | st.integers(100, 599),
    headers=st.dictionaries(st.text(), st.text()),
    body=st.binary(),
    chunks=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40))).map(tuple),
    started=st.just("2026-11-29T12:00:00+00:00"),
    seconds=st.floats(0, 1e6),
    transport_error=st.none() | st.text(st.characters(codec="utf-8")),
)


@given(st.lists(transfers, max_size=3))
def test_exchanges_come_back_as_they_went_in(tmp_path_factory: pytest.TempPathFactory, written: list[Transfer]) -> None:
    path = tmp_path_factory.mktemp("journal") / "a.sqlite"
    exchanges = [Exchange(f"k{n}", "d", "p", "c", "m", n, None, transfer) for n, transfer in enumerate(written)]
    with Journal.open(path, SETTINGS) as journal:
        assert all(journal.add(each) for each in exchanges)
        assert list(journal.exchanges()) == exchanges
    assert list(read_journal(path)) == exchanges


def test_a_finished_key_is_written_once(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.sqlite", SETTINGS) as journal:
        assert journal.add(exchange(body=b"first"))
        assert not journal.add(exchange(body=b"second"))
        assert [each.transfer.body for each in journal.exchanges()] == [b"first"]


def test_failed_attempts_are_kept_and_block_nothing(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a.sqlite", SETTINGS) as journal:
        assert journal.add(exchange(failure="http_error"))
        assert journal.add(exchange(failure="stream_cut"))
        assert journal.finished_keys() == set()
        assert journal.add(exchange())
        assert journal.finished_keys() == {"k"}
        assert [each.failure for each in journal.exchanges()] == ["http_error", "stream_cut", None]


def test_two_writers_cannot_finish_a_key_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Journal.open(path, SETTINGS) as first, Journal.open(path, SETTINGS) as second:
        written = [first.add(exchange()), second.add(exchange()), second.add(exchange("l")), first.add(exchange("l"))]
    assert written == [True, False, True, False]
    assert [each.key for each in read_journal(path)] == ["k", "l"]


def test_many_may_begin_a_journal_together(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    barrier = threading.Barrier(6)
    written = []

    def begin(number: int) -> None:
        barrier.wait()
        with Journal.open(path, SETTINGS) as journal:
            written.append(journal.add(exchange(f"k{number}")))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == [True] * 6
    assert len(list(read_journal(path))) == 6


def test_the_key_names_everything_that_is_asked_for() -> None:
    asked = [
        ("d", "p", 0, b"{}"),
        ("e", "p", 0, b"{}"),
        ("d", "q", 0, b"{}"),
        ("d", "p", 1, b"{}"),
        ("d", "p", 0, b"[]"),
    ]
    keys = [exchange_key(*each) for each in asked]
    assert len(set(keys)) == 5
    assert exchange_key(*asked[0]) == keys[0]


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"temperature": 0.6}, "temperature"), ({"seed": 1}, "seed"), ({"host": "h"}, "host"), ({"model": "n"}, "model")],
)
def test_other_settings_are_refused(tmp_path: Path, changed: dict[str, object], field: str) -> None:
    path = tmp_path / "a.sqlite"
    Journal.open(path, SETTINGS).close()
    with pytest.raises(JournalError, match=rf"was begun with {field} = .*, now it is .*: "):
        Journal.open(path, SETTINGS | changed)
    with Journal.open(path, SETTINGS | {"temperature": 1}) as journal:
        assert journal.finished_keys() == set()


def test_a_missing_setting_is_refused(tmp_path: Path) -> None:
    Journal.open(tmp_path / "a.sqlite", SETTINGS).close()
    with pytest.raises(JournalError, match="begun with dataset = 'd', now it is None"):
        Journal.open(tmp_path / "a.sqlite", {"model": "m", "temperature": 1.0, "seed": None})


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE exchanges (key)")
    connection.commit()
    connection.close()


def test_files_that_are_no_journal_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "prompts.jsonl", tmp_path / "other.sqlite"
    text.write_text('{"messages": []}\n' * 100)
    other_database(database)
    for path in (text, database):
        before = path.read_bytes()
        with pytest.raises(JournalError, match="is no journal of replies"):
            Journal.open(path, SETTINGS)
        with pytest.raises(JournalError, match="is no journal of replies"):
            list(read_journal(path))
        assert path.read_bytes() == before


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "a.sqlite", tmp_path):
        with pytest.raises(JournalError, match=f"{path} cannot be opened"):
            Journal.open(path, SETTINGS)
    with pytest.raises(JournalError, match="does not exist"):
        list(read_journal(tmp_path / "a.sqlite"))
    assert list(tmp_path.iterdir()) == []


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run #1 100%?.sqlite"
    with Journal.open(path, SETTINGS) as journal:
        journal.add(exchange("k0"))
        journal.add(exchange("k1"))
        reading = read_journal(path)
        keys = [next(reading).key]
        journal.add(exchange("k2"))
        keys += [each.key for each in reading]
        assert keys == ["k0", "k1"]
        assert [each.key for each in read_journal(path)] == ["k0", "k1", "k2"]


def test_a_closed_journal_is_one_file_that_reading_leaves_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Journal.open(path, SETTINGS) as journal:
        journal.add(exchange())
    before = path.read_bytes()
    assert len(list(read_journal(path))) == 1
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_an_added_exchange_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    program = (
        "import os, signal, sys\n"
        "from tests.test_journal import SETTINGS, Journal, exchange\n"
        "journal = Journal.open(sys.argv[1], SETTINGS)\n"
        "journal.add(exchange())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], cwd=Path(__file__).parents[1], check=False)
    assert killed.returncode == -9
    assert list(read_journal(path)) == [exchange()]
    with Journal.open(path, SETTINGS) as journal:
        assert journal.finished_keys() == {"k"}


def test_what_was_asked_is_found_by_the_first_digits_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    keys = [exchange_key("d", prompt, 0, b"{}") for prompt in "abc"]
    with Journal.open(path, SETTINGS) as journal:
        journal.add(exchange(keys[0]))
        journal.add(exchange(keys[1], "rate_limited"))
        journal.add(exchange(keys[2], "rate_limited"))
        journal.add(exchange(keys[2]))
    found = list(find_asked(path, [keys[2][:16], keys[1][:16], "0" * 16, keys[0][:16]]))
    assert [each and each.key for each in found] == [keys[2], keys[1], None, keys[0]]
    assert found[0] is not None
    assert (found[0].dataset, found[0].prompt_id, found[0].sample) == ("d", "p", 0)
    assert found[0].request == b'{"model":"m"}'


def test_nothing_is_asked_of_a_journal_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="does not exist"):
        list(find_asked(tmp_path / "none.sqlite", ["0"]))
    (tmp_path / "text.sqlite").write_text("no database, but long enough to be looked at as one")
    with pytest.raises(JournalError, match="is no journal"):
        list(find_asked(tmp_path / "text.sqlite", ["0"]))


def plain_journal(path: Path, rows: list[Exchange], settings: dict[str, object] = SETTINGS) -> Path:
    """A journal as the first layout had it, written out by hand."""
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE exchanges (attempt INTEGER PRIMARY KEY, key TEXT NOT NULL, dataset TEXT NOT NULL,"
        " prompt_id TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, sample INTEGER NOT NULL, failure TEXT,"
        " request BLOB NOT NULL, status INTEGER, headers TEXT NOT NULL, body BLOB NOT NULL, chunks TEXT NOT NULL,"
        " started TEXT NOT NULL, seconds REAL NOT NULL, transport_error TEXT);"
        "CREATE UNIQUE INDEX finished_once ON exchanges (key) WHERE failure IS NULL;"
        f"PRAGMA application_id = {int.from_bytes(b'KHJ1')};"
    )
    connection.executemany(
        "INSERT INTO settings VALUES (?, ?)", [(name, json.dumps(value)) for name, value in settings.items()]
    )
    for each in rows:
        sent = each.transfer
        connection.execute(
            "INSERT INTO exchanges VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(each.key, each.dataset, each.prompt_id, each.provider, each.model, each.sample, each.failure),
                *(sent.request, sent.status, json.dumps(sent.headers), sent.body, json.dumps(sent.chunks)),
                *(sent.started, sent.seconds, sent.transport_error),
            ),
        )
    connection.commit()
    connection.close()
    return path


def test_a_journal_of_the_first_layout_is_read_and_not_written(tmp_path: Path) -> None:
    rows = [exchange("a", "http_error"), exchange("a", body=b"late"), exchange("b")]
    path = plain_journal(tmp_path / "old.sqlite", rows)
    before = path.read_bytes()
    assert list(read_journal(path)) == rows
    assert list(read_journal(path, settled=True)) == rows[1:]
    assert read_settings(path) == SETTINGS
    assert read_totals(path) == Totals(asked=3, finished=2)
    assert read_runs(path) == []
    with pytest.raises(JournalError, match=r"merge it into a new journal \(python -m kimi_helpers merge-journals"):
        Journal.open(path, SETTINGS)
    assert path.read_bytes() == before


def test_of_each_key_one_attempt_is_settled(tmp_path: Path) -> None:
    rows = [
        exchange("a", "x"),
        exchange("b", "x"),
        exchange("a"),
        exchange("b", "y"),
        exchange("c"),
        exchange("a", "z"),
    ]
    with Journal.open(tmp_path / "a.sqlite", SETTINGS) as journal:
        journal.add_many(rows)
    assert list(read_journal(tmp_path / "a.sqlite", settled=True)) == [rows[2], rows[3], rows[4]]


def test_bodies_are_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    event = b'data: {"id":"gen-1","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    with Journal.open(path, SETTINGS) as journal:
        journal.add(exchange(body=event * 10_000))
    assert path.stat().st_size < len(event) * 10_000 / 10
    connection = sqlite3.connect(path)
    (stored,) = connection.execute("SELECT body FROM exchanges").fetchone()
    connection.close()
    assert zstandard.decompress(stored) == event * 10_000


def test_many_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Journal.open(path, SETTINGS) as journal:
        billed = replace(exchange("a"), prompt_tokens=3, completion_tokens=4, cost=0.5)
        assert journal.add_many([billed, exchange("b", "x"), exchange("a", body=b"again")]) == [True, True, False]
        totals = Totals(asked=2, finished=1, prompt_tokens=3, completion_tokens=4, cost=0.5)
        assert journal.totals() == totals
        connection = sqlite3.connect(path)
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON exchanges WHEN NEW.key = 'd' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        connection.close()
        with pytest.raises(JournalError, match=r"a\.sqlite cannot be written \(no\): what was written before is safe"):
            journal.add_many([exchange("c"), exchange("d")])
        assert journal.totals() == totals
        assert journal.add_many([exchange("c")]) == [True]
        assert journal.finished_among(["a", "b", "c", "d"]) == {"a", "c"}
    assert read_totals(path) == replace(totals, asked=3, finished=2)


def test_runs_are_noted_with_their_listing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    runs = [
        RunRecord("2026-12-07T10:00:00+00:00", {"samples": 2}, b"{}"),
        RunRecord("2026-12-07T11:00:00+00:00", {}, None),
    ]
    with Journal.open(path, SETTINGS) as journal:
        for run in runs:
            journal.begin_run(run)
    assert read_runs(path) == runs


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are a matter of Unix")
def test_a_disk_that_fills_up_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    program = (
        "import random, resource, signal, sys\n"
        "from tests.test_journal import SETTINGS, Journal, JournalError, exchange\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))\n"
        "with Journal.open(sys.argv[1], SETTINGS) as journal:\n"
        "    for n in range(10_000):\n"
        "        try:\n"
        "            journal.add(exchange(str(n), body=random.Random(n).randbytes(20_000)))\n"
        "        except JournalError as error:\n"
        "            print(error)\n"
        "            break\n"
        "        print(n, flush=True)\n"
    )
    filled = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=Path(__file__).parents[1], check=True, capture_output=True
    )
    *written, told = filled.stdout.decode().splitlines()
    assert "cannot be written" in told
    assert 10 < len(written) < 100
    rows = list(read_journal(path))
    assert [each.key for each in rows] == written
    assert [each.transfer.body for each in rows] == [random.Random(n).randbytes(20_000) for n in range(len(rows))]
    with Journal.open(path, SETTINGS) as journal:
        assert journal.totals().finished == len(written)
        assert journal.add(exchange("next"))


def test_a_large_journal_is_looked_through_without_reading_its_bodies(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    keys = [f"{number:064x}" for number in range(4000)]
    with Journal.open(path, SETTINGS) as journal:
        journal.add_many([exchange(key, body=random.Random(key).randbytes(3000)) for key in keys])
    with Journal.open(path, SETTINGS) as journal:
        tracemalloc.start()
        found = sum(len(journal.finished_among(keys[start : start + 64])) for start in range(0, len(keys), 64))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found == 4000
    assert most < 200_000
