"""The `training` verb: a journal's graded replies become a set and an export; faults are one sentence."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kimi_helpers.__main__ import main
from kimi_helpers.graded_rows import grade_replies, write_rows
from kimi_helpers.merging import read_manifest
from kimi_helpers.profiles import read_profiles
from kimi_helpers.reply_sources import read_sources
from kimi_helpers.simulator.demo import demo_run
from kimi_helpers.vocabulary import load_vocabulary
from kimi_helpers.workspace import DATA


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    journal, _ = demo_run(folder)
    profiles = read_profiles(DATA / "profiles" / "loopback.toml")
    rows = grade_replies(read_sources([journal]), lambda layout: load_vocabulary(format=layout.name), profiles)
    write_rows(folder / "replies.jsonl", list(rows), profiles)
    return folder / "replies.jsonl"


def test_a_journal_becomes_a_set_and_an_export(graded: Path, tmp_path: Path) -> None:
    out, exported = tmp_path / "set", tmp_path / "specforge"
    done = CliRunner().invoke(main, ["training", "build", str(graded), "--out", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "456 rows read" in done.output
    assert "left out: grade exact_ambiguous" in done.output
    assert (
        "no host returned ids here" in (out / "card.md").read_text() or "are split so" in (out / "card.md").read_text()
    )
    assert (out / "card.html").is_file()
    manifest = read_manifest(out)
    assert {group["dataset"] for group in manifest["groups"]["train"]} == {"loopback"}
    done = CliRunner().invoke(main, ["training", "export", str(out), "--to", "specforge", "--out", str(exported)])
    assert done.exit_code == 0, done.output
    lines = (exported / "train.jsonl").read_text().splitlines()
    assert len(lines) == sum(group["rows"] for group in manifest["groups"]["train"])
    assert json.loads(lines[0])["loss_mask"][-1] == 1
    for trainer, told in (("specforge-conversations", "conversations"), ("model-optimizer", "left out: tools")):
        target = tmp_path / trainer
        done = CliRunner().invoke(main, ["training", "export", str(out), "--to", trainer, "--out", str(target)])
        assert done.exit_code == 0, done.output
        assert told in done.output
        assert {path.name for path in target.iterdir()} >= {"train.jsonl", "evaluation.jsonl", "chat_template.jinja"}


def test_faults_are_told(graded: Path, tmp_path: Path) -> None:
    def told(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["training", "build", "--out", str(tmp_path / "set"), *arguments])
        assert done.exit_code == 2, done.output
        return done.output

    (tmp_path / "policy.toml").write_text('grade = ["engine_ids"]\n')
    assert "policy.toml: grade: Extra inputs are not permitted" in told(
        str(graded), "--policy", f"{tmp_path}/policy.toml"
    )
    (tmp_path / "other.jsonl").write_text('{"text": "a"}\n')
    assert "none of the columns of graded replies" in told(str(tmp_path / "other.jsonl"))
    moved = tmp_path / "moved.jsonl"
    moved.write_text(graded.read_text().replace(str(graded.parent), "/nowhere"))
    assert "say where with --journal" in told(str(moved), "--workers", "1")
    assert "cannot be read" in told(str(tmp_path / "none.jsonl"))
