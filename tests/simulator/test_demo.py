"""The demonstration run: small, whole or absent, and its truth is the truth."""

import json
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kimi_helpers.replies import Reply
from kimi_helpers.reply_sources import read_sources
from kimi_helpers.simulator import demo
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import DATA

PROMPTS = (DATA / "prompts" / "loopback.jsonl").read_text("utf-8").count("\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return demo.demo_run(tmp_path_factory.mktemp("demo") / "new" / "folder")


def true_ids(truth: Path) -> dict[str, list[int]]:
    rows = [json.loads(line) for line in truth.read_text("utf-8").splitlines()]
    return {row["generation_id"]: row["token_ids"] for row in rows}


def no_server() -> AbstractContextManager[str]:
    pytest.fail("a server was started")


def test_every_host_is_asked_for_every_prompt_once(made: tuple[Path, Path]) -> None:
    journal, truth = made
    assert sorted(path.name for path in journal.parent.iterdir()) == ["journal.sqlite", "truth.jsonl"]
    outcomes = [reply.outcome for reply in read_sources([journal])]
    assert Counter(outcome.provider for outcome in outcomes) == {host.name: PROMPTS for host in HOSTS}
    assert PROMPTS > 10
    assert {outcome.generation_id for outcome in outcomes} == set(true_ids(truth))


def test_the_truth_spells_what_the_faithful_host_returned(made: tuple[Path, Path], kimi: Vocabulary) -> None:
    journal, truth = made
    ids = true_ids(truth)
    spelled = 0
    for sourced in read_sources([journal]):
        reply = sourced.outcome
        if reply.provider == "Loopback Faithful" and isinstance(reply, Reply) and reply.reasoning and reply.content:
            assert reply.generation_id is not None
            text = kimi.decode(ids[reply.generation_id])
            assert text.startswith(f"{reply.reasoning}</think>{reply.content}<|")
            spelled += 1
    assert spelled > 5


def test_a_second_call_asks_for_nothing(made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before = [path.read_bytes() for path in made]
    monkeypatch.setattr(demo, "running", no_server)
    assert demo.demo_run(made[0].parent) == made
    assert [path.read_bytes() for path in made] == before


def test_a_run_that_is_cut_short_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "HOSTS", HOSTS[:1])
    with monkeypatch.context() as patch:
        patch.setattr(demo, "write_truth", stop)
        with pytest.raises(KeyboardInterrupt):
            demo.demo_run(tmp_path)
    assert list(tmp_path.iterdir()) == []
    _, truth = demo.demo_run(tmp_path)
    assert len(true_ids(truth)) == PROMPTS


def test_a_journal_of_unknown_truth_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "running", no_server)
    (tmp_path / "journal.sqlite").write_bytes(b"paid for")
    with pytest.raises(FileExistsError, match=r"exists without truth\.jsonl beside it; give another folder"):
        demo.demo_run(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"paid for"]
