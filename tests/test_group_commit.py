"""Exchanges written together: each on disk before its `add` returns, and each with its own answer."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from kimi_helpers.group_commit import GroupCommit
from kimi_helpers.journal import Exchange, Journal, JournalError, read_journal
from kimi_helpers.openrouter import Transfer


def exchange(key: str) -> Exchange:
    transfer = Transfer(b"{}", 200, {}, key.encode(), (), "2026-11-29T12:00:00+00:00", 1.0, None)
    return Exchange(key, "d", key, "p", "m", 0, None, transfer)


def test_what_is_added_is_on_disk_once_and_says_whether_it_is_new(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"

    async def add(commits: GroupCommit, key: str) -> bool:
        added = await commits.add(exchange(key))
        assert key in {each.key for each in read_journal(path)}
        return added

    async def main() -> list[bool]:
        with Journal.open(path, {}) as journal:
            async with GroupCommit(journal) as commits:
                return await asyncio.gather(*(add(commits, key) for key in [*"abcdefgh", "a"]))

    assert asyncio.run(main()) == [True] * 8 + [False]
    assert sorted(each.key for each in read_journal(path)) == list("abcdefgh")


def test_those_that_wait_share_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    add_many = Journal.add_many

    def counting(self: Journal, exchanges: list[Exchange]) -> list[bool]:
        together.append(len(exchanges))
        return add_many(self, exchanges)

    monkeypatch.setattr(Journal, "add_many", counting)

    async def main() -> None:
        with Journal.open(tmp_path / "j.sqlite", {}) as journal:
            async with GroupCommit(journal) as commits:
                await asyncio.gather(*(commits.add(exchange(str(n))) for n in range(50)))

    asyncio.run(main())
    assert together == [50]


def test_what_nobody_waits_for_any_more_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"

    async def main() -> None:
        with Journal.open(path, {}) as journal:
            async with GroupCommit(journal) as commits:
                tasks = [asyncio.create_task(commits.add(exchange(key))) for key in "ab"]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()

    asyncio.run(main())
    assert sorted(each.key for each in read_journal(path)) == ["a", "b"]


def test_a_write_that_fails_is_told_to_all_who_wait_for_it(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"

    async def main() -> list[object]:
        with Journal.open(path, {}) as journal:
            with sqlite3.connect(path) as other:
                other.execute("CREATE TRIGGER full BEFORE INSERT ON exchanges BEGIN SELECT RAISE(ABORT, 'full'); END")
            other.close()
            async with GroupCommit(journal) as commits:
                return list(await asyncio.gather(*(commits.add(exchange(key)) for key in "ab"), return_exceptions=True))

    assert [type(each) for each in asyncio.run(main())] == [JournalError, JournalError]
    assert list(read_journal(path)) == []
