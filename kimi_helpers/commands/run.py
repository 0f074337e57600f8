"""`run`: notebooks, headless."""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from kimi_helpers import runner, workspace
from kimi_helpers.commands.shared import shown, unusable
from kimi_helpers.parameter_files import combinations, read_parameter_file
from kimi_helpers.pipeline import wiring
from kimi_helpers.run_record import NotebookRun, Verdict, new_run_dir

SETTLED_BY = (Verdict.interrupted, Verdict.kernel_died, Verdict.timeout, Verdict.failed)


@click.command()
@click.argument("notebooks", nargs=-1)
@click.option("-p", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter; again: a run a value.")
@click.option("-f", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Parameters in YAML.")
@click.option("--cell-timeout", type=click.IntRange(min=1), default=3600, show_default=True, help="Seconds a cell.")
@click.option("--run-timeout", type=click.IntRange(min=1), help="Seconds for all notebooks of a run.  [default: none]")
@click.option("--resume", type=click.Path(exists=True, file_okay=False), help="Folder of a run to go on with.")
def run(
    notebooks: tuple[str, ...],
    given: tuple[tuple[str, str], ...],
    files: tuple[str, ...],
    cell_timeout: int,
    run_timeout: int | None,
    resume: str | None,
) -> None:
    """Run NOTEBOOKS headless; without a name, the whole pipeline against the loopback hosts.

    Executed notebooks, pages and run.json go into a new folder of outputs/. A parameter that is given several times, or
    stands in the `matrix` of a file, makes a run a value. With --resume, what has not changed since is left out.
    """
    paths = [_notebook(name) for name in notebooks] or sorted(workspace.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    limits = runner.Limits(cell_timeout, run_timeout)
    try:
        chosen = combinations([read_parameter_file(Path(file)) for file in files], given)
        if resume and len(chosen) > 1:
            raise click.UsageError("--resume goes on with one run; give each parameter once")
        if len({path.name for path in paths}) < len(paths):
            raise click.UsageError("two notebooks have the same file name; run them in runs of their own")
        for parameters, _ in chosen:
            runner.plan_parameters(paths, parameters)
        ended = []
        with _ends_as_ctrl_c():
            for parameters, own in chosen:
                folder = Path(resume).resolve() if resume else _new_folder(own)
                ended.append((own, folder, _run_into(folder, paths, parameters, limits, bool(resume))))
                if ended[-1][2][-1].verdict is Verdict.interrupted:
                    break
    except runner.NotebookError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise unusable(error, "written") from None
    _tell(ended)
    verdicts = [runs[-1].verdict for _, _, runs in ended]
    sys.exit(next((verdict.exit_code for verdict in SETTLED_BY if verdict in verdicts), 0))


def _new_folder(own: Mapping[str, Any]) -> Path:
    return new_run_dir(workspace.OUTPUTS, "-".join(str(value) for value in own.values()))


def _run_into(
    folder: Path, paths: Sequence[Path], parameters: Mapping[str, Any], limits: runner.Limits, resume: bool
) -> list[NotebookRun]:
    named = folder.relative_to(workspace.ROOT) if folder.is_relative_to(workspace.ROOT) else folder
    shares = runner.plan_parameters(paths, parameters, wiring(paths, named.as_posix(), parameters))
    try:
        return runner.run_pipeline(
            paths, shares, folder, limits=limits, progress=sys.stderr.isatty(), resume=resume, report=_report
        )
    except runner.NotebookError:
        with suppress(OSError):
            folder.rmdir()  # nothing has run, so nothing is in it
        raise


def _report(done: NotebookRun) -> None:
    """A line a notebook, when it is over."""
    told = "unchanged since then, not run again" if done.is_kept else f"{done.seconds:.1f} s"
    click.echo(f"{done.verdict:<12} {done.notebook}  {told}  {done.reason}".rstrip())


def _tell(ended: Sequence[tuple[Mapping[str, Any], Path, Sequence[NotebookRun]]]) -> None:
    """Where to look; of several runs a table."""
    if len(ended) == 1:
        _, folder, runs = ended[0]
        pages = ", ".join(shown(done.html) for done in runs if done.html.exists())
        click.echo(f"\nLook at {pages or shown(folder)}")
        return
    own = {name for values, _, _ in ended for name in values}
    rows = [("verdict", *sorted(own), "seconds", "folder", "reason")]
    for values, folder, runs in ended:
        seconds = f"{sum(done.seconds for done in runs):.1f}"
        last = runs[-1]
        rows.append((last.verdict, *(str(values[name]) for name in sorted(own)), seconds, shown(folder), last.reason))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    click.echo()
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


@contextmanager
def _ends_as_ctrl_c() -> Iterator[None]:
    """A request to end (SIGTERM, as of `kill` or a scheduler) is taken as Ctrl-C, so that the kernel ends, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _notebook(name: str) -> Path:
    for path in (Path(name), workspace.NOTEBOOKS / name, workspace.NOTEBOOKS / f"{name}.ipynb"):
        with suppress(OSError):  # a name can be longer than the file system allows
            if path.is_file() and path.suffix == ".ipynb":
                return path
    known = ", ".join(path.stem for path in sorted(workspace.NOTEBOOKS.glob("*.ipynb")))
    raise click.UsageError(f"there is no notebook {name}; give a path, or one of {known}")
