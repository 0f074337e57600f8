"""The command line, in this process with tiny notebooks, and whole as a process of its own."""

# mypy: disable-error-code="no-untyped-call"

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx
import huggingface_hub
import nbformat
import pyarrow.parquet as pq
import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner, Result

from kimi_helpers import __main__ as cli
from kimi_helpers import vocabulary_download
from kimi_helpers import workspace as workspace_paths
from kimi_helpers.commands import shared
from kimi_helpers.rank_files import VocabularyError
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary
from kimi_helpers.workspace import NOTEBOOKS, ROOT
from tests.conftest import tiny_rank_file, tiny_table, write_folder
from tests.reply_samples import completion, json_body

EXACT = {"engine_ids", "logprob_bytes", "exact_unique"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def invoke(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    """Run the command line here; anything but an exit is a fault of it."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def refused(result: Result) -> str:
    """The one sentence of a command whose arguments are wrong."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    usage, _, sentence = result.stderr.partition("\nError: ")
    assert usage.startswith("Usage: ")
    assert sentence.strip()
    assert "\n" not in sentence.strip()
    return sentence.strip()


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# run


@dataclass(frozen=True)
class Workspace:
    """A workspace with two tiny notebooks, named as those that hand files to each other."""

    root: Path

    @property
    def runs(self) -> list[Path]:
        """The run folders."""
        return sorted((self.root / "outputs").iterdir()) if (self.root / "outputs").exists() else []

    def write(self, stem: str, parameters: str, *sources: str) -> Path:
        """A notebook of a parameters cell and code cells."""
        cells = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
        cells += [nbformat.v4.new_code_cell(source) for source in sources]
        path = self.root / "notebooks" / f"{stem}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        return path

    def given(self) -> list[dict[str, Any]]:
        """The parameters of each notebook of the only run."""
        (run_dir,) = self.runs
        return [entry["parameters"] for entry in json.loads((run_dir / "run.json").read_text("utf-8"))["notebooks"]]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = Workspace(tmp_path)
    made.write("03_generation", 'base_url: str = "loopback"  # an address\nout: str = "o"  # a folder')
    made.write(
        "04_reconstruction",
        'replies: str = "loopback"  # a path\ntruth: str = ""  # a path\nshown: int = 3  # n\nout: str = "o"  # a',
    )
    for name, path in (("ROOT", tmp_path), ("OUTPUTS", tmp_path / "outputs"), ("NOTEBOOKS", tmp_path / "notebooks")):
        monkeypatch.setattr(workspace_paths, name, path)
    monkeypatch.chdir(tmp_path)
    return made


def test_without_a_name_all_notebooks_run_and_are_wired_into_one_folder(workspace: Workspace) -> None:
    result = invoke("run")
    assert result.exit_code == 0, result.output
    (run_dir,) = workspace.runs
    folder = f"outputs/{run_dir.name}"
    assert workspace.given() == [
        {"base_url": "loopback", "out": folder},
        {"replies": f"{folder}/journal.sqlite", "truth": f"{folder}/truth.jsonl", "shown": 3, "out": folder},
    ]
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [
        ["succeeded", "03_generation.ipynb"],
        ["succeeded", "04_reconstruction.ipynb"],
    ]
    assert lines[-1] == f"Look at {folder}/03_generation.html, {folder}/04_reconstruction.html"
    assert all((run_dir / name).is_file() for name in ("03_generation.html", "04_reconstruction.html", "run.json"))


def test_what_is_given_is_followed_by_the_wiring(workspace: Workspace) -> None:
    result = invoke("run", "-p", "out", "elsewhere", "-p", "base_url", "https://host.invalid/api/v1")
    assert result.exit_code == 0, result.output
    assert workspace.given() == [
        {"base_url": "https://host.invalid/api/v1", "out": "elsewhere"},
        # hosts that are not loopback tell no truth
        {"replies": "elsewhere/journal.sqlite", "truth": "", "shown": 3, "out": "elsewhere"},
    ]


def test_parameters_come_from_files_and_the_command_line_which_wins(workspace: Workspace) -> None:
    (workspace.root / "a.yaml").write_text("shown: 5\nreplies: from a file\n")
    (workspace.root / "b.yaml").write_text("shown: 6\n")
    result = invoke("run", "04_reconstruction", "-f", "a.yaml", "-f", "b.yaml", "-p", "shown", "7")
    assert result.exit_code == 0, result.output
    (run_dir,) = workspace.runs
    assert workspace.given() == [{"replies": "from a file", "truth": "", "shown": 7, "out": f"outputs/{run_dir.name}"}]


def test_a_parameter_given_twice_makes_two_runs_and_a_table(workspace: Workspace) -> None:
    workspace.write(
        "05_set",
        'dataset: str = "B1"  # a name\nmodel: str = ""  # a slug\nout: str = "o"  # a folder',
        "assert dataset != 'B5', 'no B5'",
    )
    (workspace.root / "a.yaml").write_text("matrix:\n  model: [moonshotai/kimi-k2.5]\n")
    result = invoke("run", "05_set", "-f", "a.yaml", "-p", "dataset", "B5", "-p", "dataset", "a/{b}")
    assert result.exit_code == 1
    assert [run_dir.name[15:] for run_dir in workspace.runs] in (["-B5", "-a-b"], ["-a-b", "-B5"])
    header, first, second = result.stdout.splitlines()[-3:]
    assert header.split() == ["verdict", "dataset", "seconds", "folder", "reason"]
    assert first.split()[:2] == ["failed", "B5"]
    assert "AssertionError: no B5" in first
    assert second.split()[:2] == ["succeeded", "a/{b}"]
    manifests = [json.loads((run_dir / "run.json").read_text()) for run_dir in workspace.runs]
    given = [manifest["notebooks"][0]["parameters"] for manifest in manifests]
    assert {values["model"] for values in given} == {"moonshotai/kimi-k2.5"}
    assert all(
        values["out"] == f"outputs/{run_dir.name}" for values, run_dir in zip(given, workspace.runs, strict=True)
    )


def test_a_run_goes_on_where_nothing_has_changed(workspace: Workspace) -> None:
    make = "import pathlib; pathlib.Path(ROOT, out, 'journal.sqlite').write_bytes(base_url.encode())"
    root = f"ROOT = {str(workspace.root)!r}"
    workspace.write("03_generation", 'base_url: str = "loopback"  # an address\nout: str = "o"  # a folder', root, make)
    failing = workspace.write("04_reconstruction", 'replies: str = ""  # a path\nout: str = "o"  # a folder', "1 / 0")
    assert invoke("run").exit_code == 1
    (run_dir,) = workspace.runs
    failing.unlink()
    workspace.write("04_reconstruction", 'replies: str = ""  # a path\nout: str = "o"  # a folder', "print(1)")
    result = invoke("run", "--resume", run_dir)
    assert result.exit_code == 0, result.output
    assert "succeeded    03_generation.ipynb  unchanged since then, not run again" in result.stdout
    assert "unchanged" not in next(line for line in result.stdout.splitlines() if "04_rec" in line)
    both = invoke("run", "--resume", run_dir).stdout
    assert both.count("unchanged since then, not run again") == 2
    # what a notebook made is not there any more as it was: it is made again
    (run_dir / "journal.sqlite").write_bytes(b"changed")
    again = invoke("run", "--resume", run_dir).stdout.splitlines()
    assert "unchanged" not in again[0]
    changed = invoke("run", "--resume", run_dir, "-p", "base_url", "http://127.0.0.1:1")
    assert "unchanged" not in changed.stdout
    assert [entry["verdict"] for entry in json.loads((run_dir / "run.json").read_text())["notebooks"]] == [
        "succeeded"
    ] * 2


def test_only_a_run_can_be_gone_on_with(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no run to go on with" in refused(invoke("run", "--resume", tmp_path / "empty"))
    told = refused(invoke("run", "--resume", tmp_path, "-p", "shown", "1", "-p", "shown", "2"))
    assert told == "--resume goes on with one run; give each parameter once"


def test_a_run_gets_the_seconds_that_are_given(workspace: Workspace) -> None:
    slow = workspace.write("05_slow", 'out: str = "o"  # a folder', "import time; time.sleep(60)")
    result = invoke("run", slow, "--run-timeout", "3")
    assert result.exit_code == 1
    assert re.match(r"timeout +05_slow\.ipynb .* the whole run took longer than its 3 seconds", result.stdout)


def test_a_request_to_end_is_taken_as_ctrl_c(workspace: Workspace) -> None:
    begun = workspace.root / "begun"
    sleep = f"open({str(begun)!r}, 'w').close()\nimport time; time.sleep(60)"
    slow = workspace.write("05_slow", 'out: str = "o"  # a', sleep)

    def end() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    result = invoke("run", slow, "03_generation")
    assert result.exit_code == 130
    assert result.stdout.startswith("interrupted  05_slow.ipynb")
    assert "03_generation" not in result.stdout


def test_a_log_has_a_line_a_notebook(workspace: Workspace) -> None:
    workspace.write("05_set", 'out: str = "o"  # a', "from tqdm import tqdm\nfor _ in tqdm(range(1000)): pass")
    result = invoke("run", "05_set", "03_generation")
    assert result.exit_code == 0
    assert "\r" not in result.output
    assert [line.split()[1] for line in result.output.splitlines()[:2]] == ["05_set.ipynb", "03_generation.ipynb"]
    assert result.stderr == ""


def test_an_error_in_a_cell_ends_the_run_with_exit_code_1(workspace: Workspace) -> None:
    failing = workspace.write("03_generation", 'out: str = "o"  # a folder', "raise ValueError('no such luck')")
    result = invoke("run", failing, "04_reconstruction.ipynb")
    assert result.exit_code == 1
    assert re.search(r"^failed +03_generation\.ipynb .* ValueError: no such luck$", result.stdout, re.MULTILINE)
    assert "04_reconstruction" not in result.stdout
    (run_dir,) = workspace.runs
    verdicts = [entry["verdict"] for entry in json.loads((run_dir / "run.json").read_text())["notebooks"]]
    assert verdicts == ["failed", None]


def test_a_cell_gets_the_seconds_that_are_given(workspace: Workspace) -> None:
    slow = workspace.write("05_slow", 'out: str = "o"  # a folder', "import time; time.sleep(60)")
    result = invoke("run", slow, "--cell-timeout", "1")
    assert result.exit_code == 1
    assert re.match(r"timeout +05_slow\.ipynb .* after 1 seconds", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing",), "there is no notebook nothing; give a path, or one of 03_generation, 04_reconstruction"),
        (("x" * 5000,), "there is no notebook x"),
        (("a.yaml",), "there is no notebook a.yaml"),
        (("04_reconstruction", "-p", "shwon", "3"), "there is no parameter shwon; did you mean shown?"),
        (
            ("04_reconstruction", "-p", "zzz", "3"),
            "there is no parameter zzz; declared are: replies, truth, shown, out",
        ),
        (("04_reconstruction", "-p", "shown", "many"), "parameter shown is int, not 'many'"),
        (("-p", "replies", "sk-or-v1-0123456789abcdef"), "parameter replies looks like a secret"),
        (("04_reconstruction", "-p", "shown"), "Option '-p' requires 2 arguments"),
        (("-f", "missing.yaml"), "File 'missing.yaml' does not exist"),
        (("--cell-timeout", "0"), "0 is not in the range"),
        (("03_generation", "03_generation"), "two notebooks have the same file name"),
    ],
)
def test_wrong_arguments_run_nothing(workspace: Workspace, arguments: tuple[str, ...], says: str) -> None:
    (workspace.root / "a.yaml").write_text("shown: 5\n")
    result = CliRunner().invoke(cli.main, ["run", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]
    assert "sk-or" not in result.output
    assert workspace.runs == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"shown: 5\nkey: 'sk-or-v1-secret\n", "is not YAML: line 3: found unexpected end of stream"),
        (b"\xff\xfe\x00", "is not YAML: 'utf-8' codec can't decode byte 0xff"),
        (b"shown: 2026-99-99\n", "parameter shown is int, not '2026-99-99'"),
        (b"shown: 1:30\n", "parameter shown is int, not '1:30'"),
        (b"shown: 1\nshown: 2\n", "is not YAML: line 1: shown is given twice; keep one"),
        (b"matrix: [1]\n", "matrix does not map names to lists"),
        (b"matrix:\n  shown: []\n", "matrix does not map names to lists"),
        (b"shown: " + b"[" * 2_000, "is not YAML: maximum recursion depth exceeded"),
        (b"shown: !!python/object/apply:os.getcwd []\n", "is not YAML: line 1: could not determine a constructor"),
        (b"- shown\n", "does not map parameter names to values; write lines of `name: value`"),
        (b"7: shown\n", "there is no parameter 7; declared are: replies"),
        (b"", "does not map parameter names to values"),
        (b"shown: yes\n", "parameter shown is int, not 'yes'"),
    ],
)
def test_a_file_of_parameters_that_is_none_is_refused(workspace: Workspace, content: bytes, says: str) -> None:
    (workspace.root / "a.yaml").write_bytes(content)
    sentence = refused(invoke("run", "04_reconstruction", "-f", "a.yaml"))
    assert says in sentence
    assert "secret" not in sentence
    assert workspace.runs == []


def test_an_output_folder_that_cannot_be_made_is_told(workspace: Workspace) -> None:
    (workspace.root / "outputs").write_text("a file")
    assert refused(invoke("run")) == f"{workspace.root / 'outputs'} cannot be written: File exists"


# The notebooks as they are: once by the command, once by plain papermill.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the whole pipeline, in a copy of the workspace; one sample a prompt and host is enough."""
    copy = tmp_path_factory.mktemp("whole")
    for folder in ("kimi_helpers", "data", "notebooks"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "kimi_helpers", "run", "-p", "samples", "1"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    (run_dir,) = (copy / "outputs").iterdir()
    pages = done.stdout.splitlines()[-1].removeprefix("Look at ").split(", ")
    assert [copy / page for page in pages] == sorted(run_dir.glob("*.html"))
    return run_dir


def test_the_pipeline_succeeds_and_says_so(whole: Path) -> None:
    manifest = json.loads((whole / "run.json").read_text("utf-8"))
    notebooks = [path.name for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
    assert manifest["verdict"] == "succeeded"
    assert [(entry["notebook"], entry["verdict"]) for entry in manifest["notebooks"]] == [
        (name, "succeeded") for name in notebooks
    ]
    assert {"journal.sqlite", "truth.jsonl", "replies.jsonl", *notebooks} <= set(manifest["artifacts"])


def test_every_request_has_a_row(whole: Path) -> None:
    manifest = json.loads((whole / "run.json").read_text("utf-8"))
    samples = next(entry for entry in manifest["notebooks"] if entry["notebook"] == "03_generation.ipynb")
    prompts = (ROOT / samples["parameters"]["prompts"]).read_text("utf-8").splitlines()
    rows = rows_of(whole / "replies.jsonl")
    hosts = Counter(row["provider"] for row in rows)
    assert len(hosts) > 5
    assert set(hosts.values()) == {len(prompts) * samples["parameters"]["samples"]}
    assert len({row["generation_id"] for row in rows}) == len(rows)


def false_exact(folder: Path) -> tuple[int, int]:
    """How many rows are called exact, and how many of those are not."""
    truth = {row["generation_id"]: row["token_ids"] for row in rows_of(folder / "truth.jsonl")}
    exact = [row for row in rows_of(folder / "replies.jsonl") if row["grade"] in EXACT]
    return len(exact), sum(row["token_ids"] != truth[row["generation_id"]] for row in exact)


def test_no_row_is_called_exact_that_is_not(whole: Path) -> None:
    exact, wrong = false_exact(whole)
    assert exact > 100
    assert wrong == 0


def test_the_pages_stand_alone_and_describe_their_figures(whole: Path) -> None:
    providers = {row["provider"] for row in rows_of(whole / "replies.jsonl")}
    for name, begins in (("03_generation", "Billed completion tokens"), ("04_reconstruction", "Bars of replies")):
        page = BeautifulSoup((whole / f"{name}.html").read_text("utf-8"), "html.parser")
        assert page.find_all(["script", "link", "iframe", "object", "embed"]) == []
        images = page.find_all("img")
        assert [str(image["src"])[:11] for image in images] == ["data:image/"] * len(images)
        described = [str(image["alt"]) for image in images if str(image["alt"]).startswith(begins)]
        assert len(described) == 1
        assert all(provider in described[0] for provider in providers)
        assert not re.search(r"""(?:src|srcset|poster)=["']?(?:https?:)?//|@import|url\(["']?https?:""", str(page))
    assert len(page.select("div.tokens span.special")) > 1


def test_the_command_grades_a_journal_as_the_notebook_does(whole: Path, tmp_path: Path) -> None:
    profiles = ROOT / "data" / "profiles" / "loopback.toml"
    out = tmp_path / "rows.jsonl"
    result = invoke("reconstruct", whole / "journal.sqlite", "--profile", profiles, "--out", out)
    rows, noted = rows_of(out), rows_of(whole / "replies.jsonl")
    assert result.exit_code == ("failed" in {row["grade"] for row in rows})
    assert [row | {"source": ""} for row in rows] == [row | {"source": ""} for row in noted]
    assert f"Wrote {len(noted)} rows to {out}" in result.stdout


def papermill(folder: Path, *parameters: str | Path) -> None:
    """Execute 04_reconstruction with plain papermill, from another working directory."""
    command = [sys.executable, "-m", "papermill", str(NOTEBOOKS / "04_reconstruction.ipynb"), "out.ipynb"]
    done = subprocess.run(
        [*command, *map(str, parameters), "--no-progress-bar"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    executed = nbformat.read(folder / "out.ipynb", as_version=4)
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")


def test_plain_papermill_makes_its_own_replies(tmp_path: Path) -> None:
    papermill(tmp_path, "-p", "out", tmp_path / "made")
    exact, wrong = false_exact(tmp_path / "made")
    assert exact > 50
    assert wrong == 0


# reconstruct


def reply(vocabulary: Vocabulary, provider: str = "Some Host", model: str = "moonshotai/kimi-k2.5-0127") -> bytes:
    """A recorded body of a host that changes nothing and bills every token."""
    return completion(
        {"reasoning": "Easy.", "content": "It is 4."},
        provider=provider,
        model=model,
        usage={"prompt_tokens": 9, "completion_tokens": len(true_ids(vocabulary))},
    )


def true_ids(vocabulary: Vocabulary) -> list[int]:
    """What was sampled for `reply`, by the law: reasoning, its end, the answer, the end of the turn."""
    end_think, end_turn = (vocabulary.encode(text, specials=True) for text in ("</think>", "<|im_end|>"))
    return [*vocabulary.encode("Easy."), *end_think, *vocabulary.encode("It is 4."), *end_turn]


def profile(path: Path, provider: str) -> Path:
    """A file of profiles that says of one host that it changes nothing and bills the end token."""
    lines = [
        "[[profile]]",
        f"provider = {json.dumps(provider)}",
        'stacks = ["faithful"]',
        'evidence = "a test"',
        'replies = "built"',
    ]
    path.write_text("\n".join(lines), "utf-8")
    return path


@pytest.fixture
def recorded(tmp_path: Path, kimi: Vocabulary) -> Path:
    """A folder with one body, its request, and files that are neither."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "a.json").write_bytes(reply(kimi))
    (folder / "a.request.json").write_bytes(json_body({"model": "moonshotai/kimi-k2.5", "messages": []}))
    (folder / "notes.txt").write_text("no body")
    return folder


def test_plain_papermill_reads_recorded_bodies(tmp_path: Path, recorded: Path, kimi: Vocabulary) -> None:
    (recorded / "b.json").write_bytes(reply(kimi, "Loopback Faithful"))
    papermill(tmp_path, "-p", "out", tmp_path / "made", "-p", "replies", recorded)
    rows = rows_of(tmp_path / "made" / "replies.jsonl")
    assert [Path(row["source"]).name for row in rows] == ["a.json", "b.json"]
    # only of the second host a profile says that it changes nothing
    assert [row["grade"] in EXACT for row in rows] == [False, True]
    assert rows[1]["token_ids"] == true_ids(kimi)
    assert not (tmp_path / "made" / "truth.jsonl").exists()


def test_rows_become_a_table_and_json_lines(recorded: Path, tmp_path: Path, kimi: Vocabulary) -> None:
    out = tmp_path / "new" / "rows.jsonl"
    known = profile(tmp_path / "hosts.toml", "Some Host")
    result = invoke("reconstruct", recorded, "--profile", known, "--out", out)
    assert result.exit_code == 0, result.output
    header, line, _, summary, host = result.stdout.splitlines()[:5]
    assert header.split() == ["source", "provider", "format", "grade", "billed", "reconstructed", "reason"]
    assert line.split()[:5] == ["a.json", "Some", "Host", "kimi-k2.5", "exact_unique"]
    assert summary.split()[:3] == ["provider", "replies", "engine_ids"]
    assert host.split()[:3] == ["Some", "Host", "1"]
    assert result.stdout.splitlines()[-1] == f"Wrote 1 rows to {out}"
    (row,) = rows_of(out)
    told = {name: row[name] for name in ("source", "provider", "model", "transport", "grade", "completion_tokens")}
    assert told == {
        "source": str(recorded / "a.json"),
        "provider": "Some Host",
        "model": "moonshotai/kimi-k2.5-0127",
        "transport": "json",
        "grade": "exact_unique",
        "completion_tokens": len(true_ids(kimi)),
    }
    assert row["token_ids"] == true_ids(kimi)
    assert row["loss_mask"] == [1] * len(true_ids(kimi))
    assert row["reason"]
    assert {path.name for path in out.parent.iterdir()} == {"rows.jsonl", "rows.about.json"}


def test_an_out_in_parquet_holds_the_same_rows(recorded: Path, tmp_path: Path, kimi: Vocabulary) -> None:
    (recorded / "b.json").write_bytes(reply(kimi, "Loopback Faithful"))
    known = profile(tmp_path / "hosts.toml", "Some Host")
    out, lines = tmp_path / "new" / "rows.parquet", tmp_path / "rows.jsonl"
    result = invoke("reconstruct", recorded, "--profile", known, "--out", out, "--workers", "1")
    assert result.exit_code == 0, result.output
    header, first, second, _, written = result.stdout.splitlines()
    assert header.split()[:4] == ["provider", "replies", "engine_ids", "logprob_bytes"]
    assert (first.split()[:3], second.split()[:3]) == (["Some", "Host", "1"], ["Loopback", "Faithful", "1"])
    assert written == f"Wrote 2 rows to {out}"
    invoke("reconstruct", recorded, "--profile", known, "--out", lines)
    assert pq.read_table(out).to_pylist() == [
        {name: row[name] for name in pq.read_schema(out).names} for row in rows_of(lines)
    ]
    (recorded / "c.json").write_bytes(b"{}")
    assert invoke("reconstruct", recorded, "--profile", known, "--out", out, "--workers", "1").exit_code == 1
    # without profiles those of the registry are tried, as for JSON lines
    without = invoke("reconstruct", recorded, "--out", out, "--workers", "1")
    assert "Serving stacks that explain every counted reply of a host" in without.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workers", "2"], "name an --out that ends in .parquet"),
        (["--engine", "ray"], "name an --out that ends in .parquet"),
        (["--out", "a.parquet", "--engine", "ray", "--workers", "2"], "--workers goes with --engine local"),
        (["--out", "a.parquet", "--address", "auto"], "--address with --engine ray"),
    ],
)
def test_options_of_the_bulk_path_are_refused_elsewhere(recorded: Path, arguments: list[str], says: str) -> None:
    assert says in refused(invoke("reconstruct", recorded, *arguments))


def test_without_a_profile_nothing_is_exact(recorded: Path, workspace: Workspace) -> None:
    result = invoke("reconstruct", recorded)
    assert result.exit_code == 0, result.output
    (run_dir,) = workspace.runs
    assert result.stdout.splitlines()[-1] == f"Wrote 1 rows to outputs/{run_dir.name}/replies.jsonl"
    (row,) = rows_of(run_dir / "replies.jsonl")
    assert row["grade"] not in EXACT


def test_a_failed_row_gives_exit_code_1_and_is_listed(recorded: Path, tmp_path: Path) -> None:
    (recorded / "b.json").write_bytes(json_body({"error": {"code": 502, "message": "upstream"}}))
    (recorded / "c.sse").write_bytes(os.urandom(2000))
    (recorded / "d.json").write_bytes(b"[" * 100_000)
    result = invoke("reconstruct", recorded, "--out", tmp_path / "rows.jsonl")
    assert result.exit_code == 1
    grades = {Path(row["source"]).name: row["grade"] for row in rows_of(tmp_path / "rows.jsonl")}
    assert [name for name, grade in grades.items() if grade == "failed"] == ["b.json", "c.sse", "d.json"]
    assert re.search(r"^b\.json .*failed .*502: upstream$", result.stdout, re.MULTILINE)


def test_the_format_can_be_named(recorded: Path, tmp_path: Path, kimi: Vocabulary) -> None:
    (recorded / "a.json").write_bytes(reply(kimi, model="someone/finetune"))
    known = profile(tmp_path / "hosts.toml", "Some Host")
    out = tmp_path / "rows.jsonl"
    told = []
    for arguments in ((), ("--format", "kimi-k2.6")):
        assert invoke("reconstruct", recorded, "--profile", known, "--out", out, *arguments).exit_code == 0
        (row,) = rows_of(out)
        told.append((row["format"], row["grade"], row["token_ids"]))
    assert told == [(None, "unresolved", []), ("kimi-k2.6", "exact_unique", true_ids(kimi))]


def test_names_that_hosts_state_reach_the_terminal_escaped(recorded: Path, tmp_path: Path, kimi: Vocabulary) -> None:
    evil = "\x1b[31mEvil\nHost\u202e"
    (recorded / "a.json").write_bytes(reply(kimi, evil))
    (recorded / "b.json").write_bytes(json_body({"error": {"code": 1, "message": "\x1b]0;title\x07"}}))
    result = invoke("reconstruct", recorded, "--out", tmp_path / "rows.jsonl")
    assert not {"\x1b", "\x07", "\u202e"} & set(result.output)
    assert "\\x1b[31mEvil\\nHost\\u202e" in result.stdout
    assert rows_of(tmp_path / "rows.jsonl")[0]["provider"] == evil


def test_another_vocabulary_can_be_given(tmp_path: Path, tiny: Vocabulary) -> None:
    (tmp_path / "a.json").write_bytes(reply(tiny))
    tokenizer = write_folder(tmp_path / "tiny", tiny_rank_file(), tiny_table())
    known = profile(tmp_path / "hosts.toml", "Some Host")
    out = tmp_path / "rows.jsonl"
    result = invoke("reconstruct", tmp_path / "a.json", "--tokenizer", tokenizer, "--profile", known, "--out", out)
    assert result.exit_code == 0, result.output
    (row,) = rows_of(out)
    assert (row["grade"], row["token_ids"]) == ("exact_unique", true_ids(tiny))


def test_recorded_replies_of_real_hosts(shared_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    result = invoke("reconstruct", shared_dir / "recorded", "--out", out)
    assert result.exit_code == 1
    rows = {Path(row["source"]).name: row for row in rows_of(out)}
    index = rows_of(shared_dir / "recorded" / "INDEX.jsonl")
    assert set(rows) == {entry["file"] for entry in index}
    assert len(rows) == 35
    counted = [
        rows[entry["file"]]
        for entry in index
        if "kimi-k2" in (entry["model"] or "")
        and not entry["error"]
        and (entry["usage"] or {}).get("completion_tokens")
        and {"stop", "tool_calls", "length"}.intersection(entry["finish"])
    ]
    assert len(counted) == 21
    # met: ids were found whose number is the billed one, with or without the end token
    met = [row for row in counted if row["token_ids"] and len(row["token_ids"]) - row["completion_tokens"] in (0, 1)]
    assert len(met) == 20  # under the serving stacks that explain all replies of each host
    assert "The text as returned makes the billed count of 14 of 21 counted replies" in result.stdout
    assert {row["grade"] for row in rows.values()}.isdisjoint(EXACT)  # no profile was given


def wrong_vocabularies(folder: Path) -> dict[str, str]:
    """Folders that are no vocabulary, and what is said of them."""
    (folder / "empty").mkdir()
    (folder / "a file").write_text("no folder")
    noise = folder / "noise"
    noise.mkdir()
    for name in ("tiktoken.model", "tokenizer_config.json"):
        (noise / name).write_bytes(b"\xff\x00noise")
    write_folder(folder / "thoughtless", tiny_rank_file(), [row for row in tiny_table() if "think" not in row.text])
    return {
        "empty": "tiktoken.model and tokenizer_config.json is missing",
        "a file": "no such folder",
        "absent": "no such folder",
        "noise": "no added_tokens_decoder",
        "thoughtless": "names no special token '</think>'",
    }


def test_a_folder_that_is_no_vocabulary_is_refused(recorded: Path, tmp_path: Path) -> None:
    for name, says in wrong_vocabularies(tmp_path).items():
        assert says in refused(invoke("reconstruct", recorded, "--tokenizer", tmp_path / name, "--out", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "cannot be read as a TOML file"),
        (b"[[profile]]\nprovider = 'P'\nstacks = 'faithful'\nreplies = 20\nevidence = 'e'", "should be a valid list"),
        (b"[[profile]]\nprovider = 'P'\nstacks = ['faithful']\nreplies = 20", "evidence: Field required"),
        (
            b"[[profile]]\nprovider = 'P'\nstacks = ['honest']\nreplies = 20\nevidence = 'e'",
            "there is no serving stack 'honest'",
        ),
    ],
)
def test_a_bad_profile_is_refused(recorded: Path, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "hosts.toml").write_bytes(content)
    sentence = refused(invoke("reconstruct", recorded, "--profile", tmp_path / "hosts.toml", "--out", tmp_path / "o"))
    assert says in sentence
    assert not (tmp_path / "o").exists()


def test_paths_without_replies_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.request.json").write_text("{}")
    assert "no replies in" in refused(invoke("reconstruct", tmp_path / "empty", tmp_path / "a.request.json"))
    assert "does not exist" in refused(invoke("reconstruct", tmp_path / "absent.json"))
    assert "Missing argument" in refused(invoke("reconstruct"))
    unknown = refused(invoke("reconstruct", tmp_path / "empty", "--format", "kimi"))
    assert "'kimi' is not one of 'chatml', 'kimi-k2'" in unknown
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    assert "cannot be read: No such file" in refused(invoke("reconstruct", tmp_path))
    (tmp_path / "dangling.json").unlink()
    (tmp_path / "b.json").mkdir()
    assert "cannot be read: Is a directory" in refused(invoke("reconstruct", tmp_path / "b.json", tmp_path))


def test_a_database_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\0" + bytes(100))
    assert "no journal of replies" in refused(invoke("reconstruct", tmp_path / "a.sqlite", "--out", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


def test_files_that_may_not_be_read_are_told(recorded: Path, tmp_path: Path) -> None:
    closed = write_folder(tmp_path / "closed", tiny_rank_file(), tiny_table())
    (closed / "tiktoken.model").chmod(0)
    if os.access(closed / "tiktoken.model", os.R_OK):
        pytest.skip("permissions do not bind this user")
    assert "cannot be read: Permission denied" in refused(invoke("reconstruct", recorded, "--tokenizer", closed))
    (recorded / "b.json").write_bytes(b"{}")
    (recorded / "b.json").chmod(0)
    assert "b.json cannot be read: Permission denied" in refused(invoke("reconstruct", recorded))


def test_rows_that_cannot_be_written_leave_nothing(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("kept")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for out, says in {
        tmp_path / "a file" / "rows.jsonl": "cannot be written",
        tmp_path / ("x" * 300): "cannot be written: File name too long; name another --out",
        tmp_path / "pipe": "is a device or a pipe, which the file would replace",
        tmp_path / "link": "is a device or a pipe, which the file would replace",
        tmp_path: "is a directory",
    }.items():
        assert says in refused(invoke("reconstruct", recorded, "--out", out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file", "link", "pipe", "recorded"]
    assert (tmp_path / "a file").read_text() == "kept"
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_is_written_through(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("older")
    (tmp_path / "link").symlink_to(tmp_path / "rows.jsonl")
    assert invoke("reconstruct", recorded, "--out", tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert len(rows_of(tmp_path / "rows.jsonl")) == 1


# prompt-ids


def as_lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def printed(result: Result) -> list[list[int] | None]:
    return [json.loads(line) for line in result.stdout.splitlines()]


HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def test_prompts_have_the_ids_of_the_official_class(shared_dir: Path, tmp_path: Path) -> None:
    rows = json.loads((shared_dir / "kimi-tokenizer" / "fixtures" / "chat_rendered.json").read_text("utf-8"))
    (tmp_path / "all.jsonl").write_text(as_lines(*rows), "utf-8")
    result = invoke("prompt-ids", tmp_path / "all.jsonl")
    assert result.exit_code == 0, result.stderr
    assert len(rows) == 103
    assert printed(result) == [row["ids"] for row in rows]


def test_a_hand_made_prompt_of_another_vocabulary(tmp_path: Path, tiny: Vocabulary) -> None:
    tokenizer = write_folder(tmp_path / "tiny", tiny_rank_file(), tiny_table())
    row = {"messages": [{"role": "system", "content": "the"}], "add_generation_prompt": False, "tools": None}
    result = invoke("prompt-ids", "-", "--tokenizer", tokenizer, stdin=as_lines(row))
    system, middle, end = (tiny.special_id(text) for text in ("<|im_system|>", "<|im_middle|>", "<|im_end|>"))
    assert printed(result) == [[system, *b"system", middle, 257, end]]


def test_a_vocabulary_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = write_folder(tmp_path / "tiny", tiny_rank_file(), tiny_table())
    loads = []

    def counting(source: str | Path | None = None, format: str = "kimi-k2.5") -> Vocabulary:
        loads.append(source)
        return load_vocabulary(source, format)

    monkeypatch.setattr(shared, "load_vocabulary", counting)
    result = invoke("prompt-ids", "-", "--tokenizer", tokenizer, stdin=as_lines(HELLO, HELLO, HELLO))
    assert len(printed(result)) == 3
    assert loads == [str(tokenizer)]


def test_the_format_option_goes_before_the_line_s(kimi: Vocabulary) -> None:
    lines = as_lines(HELLO | {"format": "kimi-k2"})
    (own,) = printed(invoke("prompt-ids", "-", stdin=lines))
    (given,) = printed(invoke("prompt-ids", "-", "--format", "kimi-k2.5", stdin=lines))
    assert own is not None
    assert given is not None
    # K2 adds a system message of its own, K2.5 opens the think section
    assert "You are a helpful assistant" in kimi.decode(own)
    assert kimi.decode(given) == "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|><think>"


def test_special_tokens_in_messages_are_text_unless_asked_for(kimi: Vocabulary) -> None:
    lines = as_lines({"messages": [{"role": "user", "content": "a<|im_end|>b"}]})
    plain, recognised = (
        printed(invoke("prompt-ids", "-", *options, stdin=lines))[0] for options in ((), ("--recognise-specials",))
    )
    assert plain is not None
    assert recognised is not None
    assert kimi.decode(plain) == kimi.decode(recognised)
    assert (plain.count(163586), recognised.count(163586)) == (1, 2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON (Expecting property name"),
        ("\x00", "not JSON (Expecting value"),
        ("[" * 100_000, "not JSON (maximum recursion depth exceeded"),
        ("1" * 5000, "not JSON (Exceeds the limit"),
        ("[1]", "not a JSON object; write an object with a list of messages"),
        ("{}", "messages must be a list"),
        ('{"messages": {"role": "user"}}', "messages must be a list"),
        ('{"messages": ["hi"]}', "message 0 is not an object"),
        ('{"messages": [{"content": "hi"}]}', "message 0 lacks 'role'"),
        ('{"messages": [{"role": "user", "content": 5}]}', "message 0"),
        ('{"messages": [], "tools": "none"}', "tools must be a list"),
        ('{"messages": [], "tools": [{"function": {"\\u001b[31m": NaN}}]}', "tools[0].function.\\x1b[31m is nan"),
        ('{"messages": [], "thinking": "false"}', "thinking must be true or false"),
        ('{"messages": [], "add_generation_prompt": 0}', "add_generation_prompt must be true or false"),
        ('{"messages": [], "preserve_thinking": true}', "kimi-k2.5 cannot preserve the thinking"),
        ('{"messages": [], "format": ["kimi-k2"]}', "format must be a text"),
        ('{"messages": [], "format": "gpt\\u001b[31m"}', "there is no format 'gpt\\x1b[31m'; the formats are kimi-k2,"),
    ],
)
def test_a_bad_line_gives_null_and_a_sentence(line: str, says: str) -> None:
    result = invoke("prompt-ids", "-", stdin=f"{json.dumps(HELLO)}\n\n{line}\n{json.dumps(HELLO)}\n")
    assert result.exit_code == 1
    before, bad, after = printed(result)
    assert bad is None
    assert before == after != []
    assert result.stderr.startswith("line 3: ")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_a_line_that_is_not_utf_8_gives_null() -> None:
    result = invoke("prompt-ids", "-", stdin=b'{"messages": "\xff"}\n' + json.dumps(HELLO).encode())
    assert result.exit_code == 1
    assert [ids is None for ids in printed(result)] == [True, False]


def test_prompt_ids_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    assert "No such file" in refused(invoke("prompt-ids", tmp_path / "absent.jsonl"))
    assert "Is a directory" in refused(invoke("prompt-ids", tmp_path))
    assert "no such folder" in refused(invoke("prompt-ids", "-", "--tokenizer", tmp_path / "no", stdin=as_lines(HELLO)))


# simulate, vocabulary download, and the whole as a process


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = refused(invoke("simulate", "--port", str(port)))
    assert sentence == f"--port {port}: port {port} is taken; choose another, or 0 for a free one"
    assert "99999 is not in the range" in refused(invoke("simulate", "--port", "99999"))


def test_the_simulator_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "kimi_helpers", "simulate", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            assert httpx.get(f"{url}/models").json()["data"]
        finally:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert "Traceback" not in said


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*_: object, **__: object) -> NoReturn:
        pytest.fail("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", called)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", called)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("revision", ["main", "0123456", COMMIT.upper(), COMMIT + "0", "../../x"])
def test_a_revision_that_is_no_commit_is_refused_before_the_hub_is_asked(revision: str) -> None:
    sentence = refused(invoke("vocabulary", "download", "moonshotai/Kimi-K2.5", "--revision", revision))
    assert sentence.startswith(f"revision {revision!r} is not a full commit (40 hex digits)")


def test_a_hub_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(hub_id: str) -> NoReturn:
        raise VocabularyError(f"{hub_id} cannot be fetched from the hub: no network")

    monkeypatch.setattr(vocabulary_download, "commit_of", unreachable)
    assert refused(invoke("vocabulary", "download", "a/b")) == "a/b cannot be fetched from the hub: no network"


def test_a_downloaded_vocabulary_is_checked_and_can_be_named(
    shared_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(hub_id: str, name: str, revision: str) -> str:
        assert (hub_id, revision) == ("a/b", COMMIT)
        return str(shared_dir / "kimi-tokenizer" / name)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetched)
    monkeypatch.setattr(vocabulary_download, "commit_of", lambda hub_id: COMMIT)
    result = invoke("vocabulary", "download", "a/b")
    assert result.exit_code == 0, result.output
    told, folder = result.stdout.splitlines()
    assert told.startswith(f"a/b at {COMMIT}: 163584 ranks, ")
    assert sorted(path.name for path in Path(folder).iterdir()) == ["tiktoken.model", "tokenizer_config.json"]
    named = invoke("prompt-ids", "-", "--tokenizer", "a/b", stdin=as_lines(HELLO))
    assert printed(named) == printed(invoke("prompt-ids", "-", stdin=as_lines(HELLO)))


def test_a_download_that_fails_its_check_is_told(
    shared_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "tiktoken.model").symlink_to(shared_dir / "kimi-tokenizer" / "tiktoken.model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda hub_id, name, revision: str(tmp_path / name))
    sentence = refused(invoke("vocabulary", "download", "a/b", "--revision", COMMIT))
    assert "no added_tokens_decoder that maps ids to tokens" in sentence


def test_the_module_is_a_command() -> None:
    command = [sys.executable, "-m", "kimi_helpers"]
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert helped.stdout.startswith("Usage: python -m kimi_helpers [OPTIONS] COMMAND")
    assert all(verb in helped.stdout for verb in ("run", "reconstruct", "prompt-ids", "simulate", "vocabulary"))
    wrong = subprocess.run([*command, "reconstruct", "absent"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr
