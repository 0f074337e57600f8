"""Folders and manifests of runs."""

import hashlib
import json
import platform
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest

from kimi_helpers.run_record import (
    NotebookRun,
    Verdict,
    environment,
    git_state,
    new_run_dir,
    write_manifest,
)


def a_run(folder: Path, name: str, verdict: Verdict, seconds: float) -> NotebookRun:
    return NotebookRun(
        notebook=name,
        source_sha256="0" * 64,
        verdict=verdict,
        cell=None if verdict is Verdict.succeeded else 3,
        reason="" if verdict is Verdict.succeeded else "why",
        parameters={"text": "你好", "limit": None},
        started=f"2026-11-29T00:00:0{int(seconds)}+00:00",
        finished=f"2026-11-29T00:01:0{int(seconds)}+00:00",
        seconds=seconds,
        executed=folder / name,
        html=folder / f"{name}.html",
    )


def test_run_folders_are_named_by_the_time_and_never_shared(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_run_dir(tmp_path / "outputs"), range(8)))
    assert len(set(folders)) == 8
    assert all(folder.is_dir() and folder.parent == tmp_path / "outputs" for folder in folders)
    names = sorted(folder.name for folder in folders)
    assert all(re.fullmatch(r"\d{8}-\d{6}(-[2-8])?", name) for name in names)
    assert re.fullmatch(r"\d{8}-\d{6}", names[0])


def test_the_manifest_says_what_ran_and_how_it_ended(tmp_path: Path) -> None:
    notebooks = [tmp_path / name for name in ("a.ipynb", "b.ipynb", "c.ipynb")]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "rows.jsonl").write_bytes(b"{}\n")
    (tmp_path / "link").symlink_to("/etc/hostname")
    runs = [
        a_run(tmp_path, "a.ipynb", Verdict.succeeded, 1.0),
        a_run(tmp_path, "b.ipynb", Verdict.timeout, 2.5),
    ]
    manifest = json.loads(write_manifest(tmp_path, notebooks, runs).read_text("utf-8"))
    assert (manifest["verdict"], manifest["seconds"]) == ("timeout", 3.5)
    assert (manifest["started"], manifest["finished"]) == (runs[0].started, runs[1].finished)
    assert [entry["verdict"] for entry in manifest["notebooks"]] == ["succeeded", "timeout", None]
    assert manifest["notebooks"][1] == {
        "notebook": "b.ipynb",
        "source_sha256": "0" * 64,
        "verdict": "timeout",
        "cell": 3,
        "reason": "why",
        "parameters": {"text": "你好", "limit": None},
        "started": "2026-11-29T00:00:02+00:00",
        "finished": "2026-11-29T00:01:02+00:00",
        "seconds": 2.5,
        "code_sha256": "",
        "inputs": {},
        "vocabulary_sha256": None,
        "peak_bytes": None,
        "findings": [],
        "made": {},
    }
    digest = hashlib.sha256(b"{}\n").hexdigest()
    assert manifest["artifacts"] == {"deep/rows.jsonl": {"bytes": 3, "sha256": digest}}


@pytest.mark.parametrize(("done", "verdict"), [(0, None), (1, None), (2, "succeeded")])
def test_a_run_under_way_has_no_verdict(tmp_path: Path, done: int, verdict: str | None) -> None:
    notebooks = [tmp_path / name for name in ("a.ipynb", "b.ipynb")]
    runs = [a_run(tmp_path, path.name, Verdict.succeeded, 1.0) for path in notebooks[:done]]
    manifest = json.loads(write_manifest(tmp_path, notebooks, runs).read_text("utf-8"))
    assert manifest["verdict"] == verdict
    assert (manifest["finished"] is None) == (verdict is None)


def test_the_environment_is_told_without_names_of_people_or_hosts() -> None:
    told = environment()
    assert told["python"] == platform.python_version()
    assert told["packages"]["nbformat"] == nbformat.__version__
    assert str(Path.home()) not in json.dumps(told)
    assert platform.node() not in json.dumps(told["platform"])


def test_the_revision_and_whether_it_is_what_ran(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@x"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert git_state(tmp_path) is None
    (tmp_path / "f").write_text("1")
    subprocess.run([*git, "add", "f"], check=True)
    subprocess.run([*git, "commit", "-qm", "m"], check=True)
    head = subprocess.run([*git, "log", "--format=%H"], check=True, capture_output=True, text=True).stdout.strip()
    assert git_state(tmp_path) == {"revision": head, "dirty": False}
    (tmp_path / "f").write_text("2")
    assert git_state(tmp_path) == {"revision": head, "dirty": True}


def test_without_git_there_is_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


@pytest.mark.parametrize(
    ("verdict", "code"), [("succeeded", 0), ("failed", 1), ("timeout", 1), ("kernel_died", 1), ("interrupted", 130)]
)
def test_exit_codes(verdict: str, code: int) -> None:
    assert Verdict(verdict).exit_code == code
