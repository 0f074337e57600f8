"""Headless runs end in the right verdict, written where a reader looks. Real kernels, tiny notebooks."""

# mypy: disable-error-code="no-untyped-call"

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbformat import NotebookNode

from kimi_helpers import run_publishing
from kimi_helpers.notebook_execution import Limits
from kimi_helpers.notebook_files import NotebookError
from kimi_helpers.notebook_parameters import ParameterError
from kimi_helpers.run_record import NotebookRun, Verdict, file_sha256
from kimi_helpers.runner import plan_parameters, run_notebook, run_pipeline

PARAMETERS = 'text: str = "a"  # a text\nflag: bool = True  # a switch\nmax_tokens: int = 5  # a limit'


def write_notebook(path: Path, *sources: str, parameters: str = PARAMETERS) -> Path:
    """A notebook with a title, a parameters cell and the given code cells."""
    cells = [nbformat.v4.new_markdown_cell(f"# Title of {path.stem}")]
    cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def read(path: Path) -> NotebookNode:
    """The notebook, read by another JSON reader's rules: NaN is no JSON."""
    text = path.read_text("utf-8")
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} in {path.name}"))
    notebook: NotebookNode = nbformat.reads(text, as_version=4)
    return notebook


def streams(notebook: NotebookNode) -> str:
    """All that the notebook printed."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def statuses(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Source and status, as papermill's metadata has it, of each code cell."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [(cell.source, cell.metadata.papermill.status) for cell in cells]


def assert_stopped(run: NotebookRun, verdict: Verdict, cell: int, left: Sequence[str]) -> NotebookNode:
    """The verdict stands in the value, the saved notebook's metadata and banner, and the HTML; returns the notebook."""
    assert (run.verdict, run.cell) == (verdict, cell)
    executed = read(run.executed)
    assert executed.metadata.kimi_run.verdict == verdict.value
    assert executed.metadata.kimi_run.cell == cell
    assert executed.metadata.papermill.exception is True
    assert [source for source, status in statuses(executed) if status == "pending"] == left
    assert [place for place, (_, status) in enumerate(statuses(executed), 1) if status == "failed"] == [cell]
    banner = executed.cells[0]
    assert banner.cell_type == "markdown"
    assert f"did not succeed: {verdict.value.replace('_', ' ')}" in banner.source
    assert f">In [{cell}]</a>" in banner.source
    page = run.html.read_text("utf-8")
    assert "This run did not succeed" in page
    anchor = banner.source.split('href="#')[1].split('"')[0]
    assert f'id="{anchor}"' in page
    assert not any("papermill-error-cell-tag" in cell.metadata.get("tags", []) for cell in executed.cells)
    return executed


def gone(pid: int) -> bool:
    """Whether the process ends within some seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def success(tmp_path_factory: pytest.TempPathFactory) -> tuple[NotebookRun, Path]:
    """A run that succeeds, and its source."""
    folder = tmp_path_factory.mktemp("success")
    source = write_notebook(
        folder / "notebooks" / "01_{works}.ipynb",
        "import os, sys\nfrom tqdm import tqdm\nprint(text, flag, max_tokens, os.getcwd(), sys.executable, sep='\\n')",
        "",
        "for _ in tqdm(range(3), mininterval=0): pass\nfor n in range(3): print(n, flush=True)",
    )
    before = Path.cwd()
    run = run_notebook(source, {"text": '你好 "q" \\n {x}', "flag": "false"}, folder / "run")
    assert Path.cwd() == before
    return run, source


def test_a_run_succeeds_when_every_cell_ran(success: tuple[NotebookRun, Path]) -> None:
    run, source = success
    assert (run.verdict, run.cell, run.reason) == (Verdict.succeeded, None, "")
    assert run.verdict.exit_code == 0
    assert run.source_sha256 == file_sha256(source)
    assert run.parameters == {"text": '你好 "q" \\n {x}', "flag": False, "max_tokens": 5}
    assert sorted(path.name for path in run.executed.parent.iterdir()) == ["01_{works}.html", "01_{works}.ipynb"]
    executed = read(run.executed)
    assert executed.metadata.kimi_run.verdict == "succeeded"
    assert executed.cells[0].source.startswith("# Title of")
    assert "widgets" not in executed.metadata


def test_parameters_are_injected_as_values_and_stay_readable(success: tuple[NotebookRun, Path]) -> None:
    run, source = success
    text, flag, max_tokens, folder, interpreter, *_ = streams(read(run.executed)).splitlines()
    assert (text, flag, max_tokens) == ('你好 "q" \\n {x}', "False", "5")
    assert Path(folder) == source.parent.resolve()
    assert interpreter == sys.executable
    injected = [cell for cell in read(run.executed).cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert len(injected) == 1
    assert "你好" in injected[0].source
    assert read(run.executed).metadata.papermill.parameters == {"text": '你好 "q" \\n {x}', "flag": False}
    assert "你好" in run.executed.read_text("utf-8")
    assert "你好" in run.html.read_text("utf-8")


def test_what_a_cell_prints_in_pieces_is_one_output_a_stream(success: tuple[NotebookRun, Path]) -> None:
    last = read(success[0].executed).cells[-1]
    assert sorted(output.name for output in last.outputs) == ["stderr", "stdout"]
    assert [output.text for output in last.outputs if output.name == "stdout"] == ["0\n1\n2\n"]


def test_the_executed_notebook_names_no_folder_of_the_machine(success: tuple[NotebookRun, Path]) -> None:
    run, _ = success
    metadata = json.dumps(read(run.executed).metadata)
    assert str(run.executed.parent) not in metadata
    assert "01_{works}.ipynb" in metadata


def test_an_executed_notebook_can_be_run_again(success: tuple[NotebookRun, Path], tmp_path: Path) -> None:
    run = run_notebook(success[0].executed, {"text": "b"}, tmp_path)
    executed = read(run.executed)
    assert run.verdict is Verdict.succeeded
    assert streams(executed).startswith("b\nTrue\n5\n")
    assert sum("injected-parameters" in cell.metadata.get("tags", []) for cell in executed.cells) == 1


def test_the_same_notebook_runs_with_plain_papermill(success: tuple[NotebookRun, Path], tmp_path: Path) -> None:
    notebook = success[1].rename(success[1].with_name("01_works.ipynb"))
    out = tmp_path / "out.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", "papermill", str(notebook), str(out), "-p", "text", "b", "--no-progress-bar"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert streams(read(out)).startswith("b\nTrue\n5\n")


def test_an_error_in_a_cell_is_a_failure(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "a.ipynb", "raise ValueError('<b>no</b>\\nmore')", "print('never')")
    run = run_notebook(notebook, {}, tmp_path / "run")
    executed = assert_stopped(run, Verdict.failed, 2, ["print('never')"])
    assert run.reason == "ValueError: <b>no</b> more"
    assert run.verdict.exit_code == 1
    assert "&lt;b&gt;no&lt;/b&gt;" in executed.cells[0].source
    assert "never" not in streams(executed)


@pytest.mark.parametrize(
    ("source", "tag", "reason"),
    [
        ("import sys; sys.exit(0)", "any", "SystemExit: 0"),
        ("1 / 0", "raises-exception", "ZeroDivisionError: division by zero"),
        ("1", "skip-execution", "the cell did not run to its end"),
    ],
)
def test_no_cell_may_end_early_or_be_skipped(tmp_path: Path, source: str, tag: str, reason: str) -> None:
    notebook = write_notebook(tmp_path / "a.ipynb", source)
    document = nbformat.read(notebook, as_version=4)
    document.cells[-1].metadata["tags"] = [tag]
    nbformat.write(document, notebook)
    run = run_notebook(notebook, {}, tmp_path / "run")
    assert (run.verdict, run.cell, run.reason) == (Verdict.failed, 2, reason)


def test_a_cell_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    slow = (
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\nprint('begun', flush=True)\ntime.sleep(60)"
    )
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", slow, "2"), {}, tmp_path / "run", limits=Limits(cell=4))
    executed = assert_stopped(run, Verdict.timeout, 2, ["2"])
    assert "after 4 seconds" in run.reason
    assert streams(executed) == "begun\n"
    assert gone(int(pid.read_text()))


def test_a_killed_kernel_is_told_and_leaves_no_process(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    kill = (
        "import os, subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\nos.kill(os.getpid(), 9)"
    )
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", "1", kill, "3"), {"flag": True}, tmp_path / "run")
    assert_stopped(run, Verdict.kernel_died, 4, ["3"])
    assert "the kernel died" in run.reason
    assert gone(int(pid.read_text()))


def test_ctrl_c_stops_the_pipeline_and_the_kernel(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    slow = (
        f"import os, pathlib, time\nbeside = pathlib.Path({str(pid)!r} + '.new')\n"
        f"beside.write_text(str(os.getpid()))\nbeside.rename({str(pid)!r})\ntime.sleep(60)"
    )
    first = write_notebook(tmp_path / "a.ipynb", slow)
    second = write_notebook(tmp_path / "b.ipynb", "1")
    code = (
        "import sys; from pathlib import Path; from kimi_helpers.runner import run_pipeline\n"
        "runs = run_pipeline([Path(p) for p in sys.argv[2:]], [{}, {}], Path(sys.argv[1]))\n"
        "sys.exit(runs[-1].verdict.exit_code)"
    )
    command = [sys.executable, "-c", code, *map(str, (tmp_path / "run", first, second))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not pid.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["verdict"] == "interrupted"
    assert [entry["verdict"] for entry in manifest["notebooks"]] == ["interrupted", None]
    assert read(tmp_path / "run" / "a.ipynb").metadata.kimi_run.verdict == "interrupted"
    assert gone(int(pid.read_text()))


def test_runs_side_by_side_do_not_meet(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kimi_helpers.runner import run_notebook\n"
        "sys.exit(run_notebook(Path(sys.argv[1]), {'text': sys.argv[2]}, Path(sys.argv[2])).verdict.exit_code)"
    )
    notebook = write_notebook(tmp_path / "a.ipynb", "print(text)")
    folders = [tmp_path / name for name in ("x", "y", "z")]
    commands = [[sys.executable, "-c", code, str(notebook), str(folder)] for folder in folders]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert not any("in use" in text or "encryption" in text for text in said)
    assert [streams(read(folder / "a.ipynb")) for folder in folders] == [f"{folder}\n" for folder in folders]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"max_token": 3}, "no parameter max_token"),
        ({"max_tokens": "many"}, "max_tokens is int, not 'many'"),
        ({"text": "sk-or-v1-0123456789abcdef"}, "looks like a secret"),
    ],
)
def test_a_bad_parameter_is_refused_before_anything_is_written(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    notebooks = [write_notebook(tmp_path / "a.ipynb", "1"), write_notebook(tmp_path / "b.ipynb", "1", parameters="")]
    for run in (
        lambda: run_notebook(notebooks[0], given, tmp_path / "run"),
        lambda: run_pipeline(notebooks, plan_parameters(notebooks, given), tmp_path / "run"),
    ):
        with pytest.raises(ParameterError, match=says):
            run()
    assert not (tmp_path / "run").exists()


def test_each_notebook_of_a_pipeline_gets_what_it_declares(tmp_path: Path) -> None:
    notebooks = [
        write_notebook(tmp_path / "a.ipynb", parameters="x: int = 1  # a number\nboth: str = ''  # a text"),
        write_notebook(tmp_path / "b.ipynb", parameters="both: str | None = None  # a text"),
    ]
    assert plan_parameters(notebooks, {"x": "3", "both": "None"}) == [{"x": 3, "both": "None"}, {"both": None}]


def test_a_pipeline_stops_at_the_first_that_does_not_succeed(tmp_path: Path) -> None:
    notebooks = [
        write_notebook(tmp_path / "01_a.ipynb", "import pathlib\npathlib.Path(text, 'made.txt').write_text('made')"),
        write_notebook(tmp_path / "02_b.ipynb", "1 / 0", parameters=""),
        write_notebook(tmp_path / "03_c.ipynb", "1", parameters=""),
    ]
    run_dir = tmp_path / "run"
    runs = run_pipeline(notebooks, plan_parameters(notebooks, {"text": str(run_dir)}), run_dir)
    assert [run.verdict for run in runs] == [Verdict.succeeded, Verdict.failed]
    manifest = json.loads((run_dir / "run.json").read_text("utf-8"))
    assert manifest["verdict"] == "failed"
    assert [entry["verdict"] for entry in manifest["notebooks"]] == ["succeeded", "failed", None]
    assert manifest["notebooks"][1]["reason"] == "ZeroDivisionError: division by zero"
    assert set(manifest["artifacts"]) == {
        "01_a.html", "01_a.ipynb", "02_b.html", "02_b.ipynb", "made.txt",
    }  # fmt: skip
    assert not (run_dir / "03_c.ipynb").exists()


def test_a_secret_that_a_notebook_prints_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct horse battery")
    leak = "import os\nraise ValueError('401 for ' + os.environ['SOME_API_KEY'])"
    runs = run_pipeline([write_notebook(tmp_path / "a.ipynb", "1", leak)], [{}], tmp_path / "run")
    assert (runs[0].verdict, runs[0].cell) == (Verdict.failed, 3)
    assert "the value of SOME_API_KEY" in runs[0].reason
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
    assert "horse" not in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.parametrize(
    "shown",
    ["HTML(html.escape(secret))", "display({'text/html': 'x', 'text/plain': secret}, raw=True)"],
    ids=["only in the page", "only in the notebook"],
)
def test_a_secret_in_one_of_the_two_files_is_kept_in_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "<correct>&horse")
    leak = f"import html, os\nfrom IPython.display import HTML\nsecret = os.environ['SOME_TOKEN']\n{shown}"
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", leak), {}, tmp_path / "run")
    assert run.verdict is Verdict.failed
    assert "the value of SOME_TOKEN" in run.reason
    assert list((tmp_path / "run").iterdir()) == []


def test_no_notebook_is_overwritten(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "a.ipynb", "1")
    before = notebook.read_bytes()
    for refused in (lambda: run_notebook(notebook, {}, tmp_path), lambda: run_pipeline([notebook], [{}], tmp_path)):
        with pytest.raises(NotebookError, match="would be overwritten"):
            refused()
    assert notebook.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.ipynb"]


def test_two_notebooks_of_one_name_are_refused(tmp_path: Path) -> None:
    notebooks = [write_notebook(tmp_path / folder / "a.ipynb", "1") for folder in ("x", "y")]
    with pytest.raises(NotebookError, match="same file name"):
        run_pipeline(notebooks, [{}, {}], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_execution_breaks_has_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", "1"), {}, tmp_path / "run")
    assert (run.verdict, run.cell, run.reason) == (Verdict.failed, None, "OSError: no space left on device")
    assert read(run.executed).metadata.kimi_run.verdict == "failed"


def test_a_run_that_takes_too_long_as_a_whole_is_a_timeout(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    quick = "import time; time.sleep(1.5)"
    slow = (
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\nprint('begun', flush=True)\ntime.sleep(60)"
    )
    notebooks = [
        write_notebook(tmp_path / "a.ipynb", quick),
        write_notebook(tmp_path / "b.ipynb", slow, "2"),
    ]
    runs = run_pipeline(notebooks, [{}, {}], tmp_path / "run", limits=Limits(cell=60, run=6))
    assert [run.verdict for run in runs] == [Verdict.succeeded, Verdict.timeout]
    executed = assert_stopped(runs[1], Verdict.timeout, 2, ["2"])
    assert runs[1].reason == "the whole run took longer than its 6 seconds"
    assert streams(executed) == "begun\n"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["verdict"] == "timeout"
    assert gone(int(pid.read_text()))


def test_the_memory_of_a_kernel_that_died_is_told(tmp_path: Path) -> None:
    hungry = "import os, time\nheld = b'x' * 300_000_000\ntime.sleep(1.5)\nos.kill(os.getpid(), 9)"
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", hungry), {}, tmp_path / "run")
    assert run.verdict is Verdict.kernel_died
    assert re.search(
        r"it held 0\.[3-9]\d GiB when last seen \(peak .*\), and the machine had [\d.]+ GiB left", run.reason
    )
    assert run.peak_bytes is not None
    assert run.peak_bytes > 300_000_000
    assert read(run.executed).metadata.kimi_run.peak_bytes == run.peak_bytes


def test_a_flood_of_output_is_cut_in_the_notebook_and_kept_in_a_file(tmp_path: Path) -> None:
    flood = "for n in range(200_000): print(n)"
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", flood, "2"), {}, tmp_path / "run")
    assert run.verdict is Verdict.succeeded
    whole = "".join(f"{n}\n" for n in range(200_000))
    assert (tmp_path / "run" / "a.In2.stdout.txt").read_text() == whole
    kept = streams(read(run.executed))
    assert kept.startswith("0\n1\n2\n")
    assert kept.endswith("199998\n199999\n")
    assert f"... {len(whole) - 200_000:,} more characters are in a.In2.stdout.txt ..." in kept
    assert run.html.stat().st_size < 2_000_000
    assert set(run.made) == {"a.In2.stdout.txt", "a.html", "a.ipynb"}


def test_no_widget_is_left_in_the_outputs(tmp_path: Path) -> None:
    widget = (
        "from IPython.display import display\n"
        "view = {'application/vnd.jupyter.widget-view+json': {'model_id': 'x'}}\n"
        "display(view | {'text/plain': 'bar at 100%'}, raw=True)\ndisplay(view, raw=True)"
    )
    run = run_notebook(write_notebook(tmp_path / "a.ipynb", widget), {}, tmp_path / "run")
    text = run.executed.read_text()
    assert "widget" not in json.dumps([cell.get("outputs", []) for cell in json.loads(text)["cells"]])
    assert "widgets" not in read(run.executed).metadata
    assert [output.data for output in read(run.executed).cells[-1].outputs] == [{"text/plain": "bar at 100%"}]
    assert "bar at 100%" in run.html.read_text()


def test_a_full_disk_at_save_is_a_failure_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A file system of 600 kB in a mount namespace of its own: the notebook's output does not fit."""
    notebook = write_notebook(
        tmp_path / "a.ipynb", "import os\nfrom IPython.display import HTML\nHTML(os.urandom(400_000).hex())"
    )
    (tmp_path / "small").mkdir()
    code = (
        "import sys; from pathlib import Path; from kimi_helpers.runner import run_notebook\n"
        "run = run_notebook(Path(sys.argv[1]), {}, Path(sys.argv[2]))\n"
        "print(run.verdict, '|', run.reason, '|', sorted(path.name for path in Path(sys.argv[2]).iterdir()))"
    )
    mounted = 'mount -t tmpfs -o size=600k none "$1" || exit 77; exec "$2" -c "$3" "$4" "$1/run"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"]
    done = subprocess.run(
        [*command, str(tmp_path / "small"), sys.executable, code, str(notebook)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine allows no mount of one's own: a full disk cannot be made")
    assert done.stdout == "failed | the executed notebook could not be saved: No space left on device | []\n", (
        done.stderr
    )


def test_two_runs_at_once_into_one_folder_are_refused(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(60)"
    code = (
        "import sys; from pathlib import Path; from kimi_helpers.runner import run_notebook\n"
        "run_notebook(Path(sys.argv[1]), {}, Path(sys.argv[2]))"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code, str(write_notebook(tmp_path / "a.ipynb", slow)), str(tmp_path / "run")]
    )
    while not begun.exists():
        assert first.poll() is None
        time.sleep(0.05)
    other = write_notebook(tmp_path / "b.ipynb", "1")
    with pytest.raises(NotebookError, match="belongs to a run that is under way"):
        run_notebook(other, {}, tmp_path / "run")
    assert not (tmp_path / "run" / "b.ipynb").exists()
    first.send_signal(signal.SIGINT)
    first.wait(timeout=30)
    assert run_notebook(other, {}, tmp_path / "run").verdict is Verdict.succeeded


def test_a_kernel_does_not_outlive_a_runner_that_was_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    slow = (
        f"import os, pathlib, time\nbeside = pathlib.Path({str(pid)!r} + '.new')\n"
        f"beside.write_text(str(os.getpid()))\nbeside.rename({str(pid)!r})\ntime.sleep(60)"
    )
    code = (
        "import sys; from pathlib import Path; from kimi_helpers.runner import run_pipeline\n"
        "run_pipeline([Path(sys.argv[1])], [{}], Path(sys.argv[2]))"
    )
    notebook = write_notebook(tmp_path / "a.ipynb", slow)
    runner = subprocess.Popen([sys.executable, "-c", code, str(notebook), str(tmp_path / "run")])
    while not pid.exists():
        assert runner.poll() is None
        time.sleep(0.05)
    runner.kill()
    runner.wait()
    assert gone(int(pid.read_text()))
    # what was done is there, and nothing says that it succeeded
    assert json.loads((tmp_path / "run" / "run.json").read_text())["verdict"] is None
    assert read(tmp_path / "run" / ".a.running.ipynb").cells[1].execution_count == 1


def test_a_secret_in_a_file_that_a_run_made_is_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct horse battery")
    write = (
        "import json, os, pathlib\n"
        "pathlib.Path(text, 'rows.jsonl').write_text(json.dumps({'a': os.environ['SOME_API_KEY']}))"
    )
    run_dir = tmp_path / "run"
    notebook = write_notebook(tmp_path / "a.ipynb", write)
    (run,) = run_pipeline([notebook], [{"text": str(run_dir)}], run_dir)
    assert run.verdict is Verdict.failed
    assert "the value of SOME_API_KEY is in rows.jsonl" in run.reason
    assert [path.name for path in run_dir.iterdir()] == ["run.json"]
    kept = tmp_path / ".withheld" / "run" / "rows.jsonl"
    assert "horse" in kept.read_text()
    assert (kept.parent.stat().st_mode & 0o077, kept.stat().st_mode & 0o077) == (0, 0)


def test_a_page_that_cannot_be_made_is_a_failure_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(*_: Any) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(run_publishing, "render_html", render)
    (run,) = run_pipeline([write_notebook(tmp_path / "a.ipynb", "1")], [{}], tmp_path / "run")
    assert (run.verdict, run.reason) == (Verdict.failed, "its page could not be made: RecursionError: too deep")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["verdict"] == "failed"
    assert read(run.executed).metadata.kimi_run.verdict == "failed"
    assert "its page could not be made" in read(run.executed).cells[0].source


def test_a_run_whose_time_is_over_before_it_begins_is_a_timeout(tmp_path: Path) -> None:
    run = run_notebook(
        write_notebook(tmp_path / "a.ipynb", "import time; time.sleep(30)"), {}, tmp_path / "run", limits=Limits(run=0)
    )
    assert run.verdict is Verdict.timeout
    assert run.seconds < 30


def test_a_second_tagged_cell_and_a_derived_value_run_nothing(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "a.ipynb", "1")
    document = nbformat.read(notebook, as_version=4)
    document.cells[-1].metadata["tags"] = ["parameters"]
    nbformat.write(document, notebook)
    derived = write_notebook(tmp_path / "b.ipynb", parameters='a: str = "x"\nout: str = f"outputs/{a}"')
    for path, says in ((notebook, "2 cells are tagged"), (derived, "must be a literal")):
        with pytest.raises(ParameterError, match=says):
            run_notebook(path, {}, tmp_path / "run")
    assert not (tmp_path / "run").exists()
