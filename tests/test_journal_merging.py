"""Journals that become one."""

from dataclasses import replace
from pathlib import Path

import pytest

from kimi_helpers.journal import Journal, JournalError, RunRecord, Totals, read_journal, read_runs, read_totals
from kimi_helpers.journal_merging import merge_journals
from tests.loopback import events
from tests.test_journal import SETTINGS, exchange, plain_journal

RUN = RunRecord("2026-12-07T10:00:00+00:00", {"samples": 1}, b"{}")


def test_of_a_key_that_both_have_finished_the_first_reply_counts(tmp_path: Path) -> None:
    one, two, target = (tmp_path / name for name in ("one.sqlite", "two.sqlite", "all.sqlite"))
    with Journal.open(one, SETTINGS) as journal:
        journal.add_many([exchange("a", body=b"one"), exchange("b", "x")])
        journal.begin_run(RUN)
    with Journal.open(two, SETTINGS) as journal:
        journal.add_many([exchange("a", body=b"two"), exchange("b", body=b"two")])
    assert merge_journals([one, two], target) == 3
    found = [(each.key, each.failure, each.transfer.body) for each in read_journal(target)]
    assert found == [("a", None, b"one"), ("b", "x", b"{}"), ("b", None, b"two")]
    assert read_runs(target) == [RUN]
    # a merge made again writes nothing
    assert merge_journals([one, two], target) == 0
    assert read_totals(target) == Totals(asked=3, finished=2)
    assert read_runs(target) == [RUN]


def test_a_journal_of_the_first_layout_becomes_one_that_can_go_on(tmp_path: Path) -> None:
    good = exchange("a", body=b"".join(events("Hello")))
    old = plain_journal(tmp_path / "old.sqlite", [exchange("a", "http_error"), good], SETTINGS)
    new = tmp_path / "new.sqlite"
    assert merge_journals([old], new) == 2
    # what `events` states: 10 and 5 tokens for a quarter of a dollar
    assert list(read_journal(new))[1] == replace(good, prompt_tokens=10, completion_tokens=5, cost=0.25)
    with Journal.open(new, SETTINGS) as journal:
        assert journal.totals().cost == 0.25
        assert journal.finished_keys() == {"a"}


def test_replies_of_other_settings_are_not_merged(tmp_path: Path) -> None:
    one, two = tmp_path / "one.sqlite", tmp_path / "two.sqlite"
    Journal.open(one, SETTINGS).close()
    Journal.open(two, SETTINGS | {"temperature": 0.6}).close()
    with pytest.raises(JournalError, match=r"two\.sqlite was begun with temperature = 0\.6, .*one\.sqlite with 1\.0"):
        merge_journals([one, two], tmp_path / "all.sqlite")
    assert not (tmp_path / "all.sqlite").exists()
