"""`run`: notebooks, headless."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import yaml

from kimi_helpers import runner, workspace
from kimi_helpers.commands.shared import new_run_folder, shown


@click.command()
@click.argument("notebooks", nargs=-1)
@click.option("-p", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter; may be repeated.")
@click.option("-f", "files", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Parameters in YAML.")
@click.option("--cell-timeout", type=click.IntRange(min=1), default=3600, show_default=True, help="Seconds a cell.")
def run(
    notebooks: tuple[str, ...], given: tuple[tuple[str, str], ...], files: tuple[str, ...], cell_timeout: int
) -> None:
    """Run NOTEBOOKS headless; without a name, the whole pipeline against the loopback hosts.

    Executed notebooks, pages and run.json go into a new folder of outputs/.
    """
    paths = [_notebook(name) for name in notebooks] or sorted(workspace.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    try:
        parameters = _parameters(files) | dict(given)
        runner.plan_parameters(paths, parameters)
        run_dir = new_run_folder()
        wired = _wiring(paths, run_dir.relative_to(workspace.ROOT).as_posix(), parameters) | parameters
        try:
            runs = runner.run_pipeline(paths, wired, run_dir, cell_timeout=cell_timeout, progress=True)
        except runner.NotebookError:
            run_dir.rmdir()  # nothing has run, so nothing is in it
            raise
    except runner.NotebookError as error:
        raise click.UsageError(str(error)) from None
    for done in runs:
        click.echo(f"{done.verdict:<12} {done.notebook}  {done.seconds:.1f} s  {done.reason}".rstrip())
    click.echo(f"\nLook at {', '.join(shown(done.html) for done in runs if done.html.exists()) or shown(run_dir)}")
    sys.exit(runs[-1].verdict.exit_code)


def _notebook(name: str) -> Path:
    for path in (Path(name), workspace.NOTEBOOKS / name, workspace.NOTEBOOKS / f"{name}.ipynb"):
        with suppress(OSError):  # a name can be longer than the file system allows
            if path.is_file() and path.suffix == ".ipynb":
                return path
    known = ", ".join(path.stem for path in sorted(workspace.NOTEBOOKS.glob("*.ipynb")))
    raise click.UsageError(f"there is no notebook {name}; give a path, or one of {known}")


def _parameters(files: Sequence[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for file in files:
        try:
            content = yaml.safe_load(Path(file).read_text("utf-8"))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise click.UsageError(f"{file} is not YAML: {_yaml_problem(error)}") from None
        if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
            raise click.UsageError(f"{file} does not map parameter names to values; write lines of `name: value`")
        parameters |= content
    return parameters


def _yaml_problem(error: Exception) -> str:
    """What is wrong and where, without the line itself: a key may stand in it."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _wiring(paths: Sequence[Path], run_dir: str, given: dict[str, Any]) -> dict[str, Any]:
    """Where the notebooks of one run leave files for each other, relative to the workspace's root."""
    defaults = {name: parameter.default for path in paths for name, parameter in runner.read_parameters(path).items()}
    values = defaults | {"out": run_dir} | given
    wiring = {"out": run_dir}
    if any(path.stem == "03_generation" for path in paths):
        wiring["replies"] = f"{values['out']}/journal.sqlite"
        if values.get("base_url") == "loopback":  # no other host tells the truth
            wiring["truth"] = f"{values['out']}/truth.jsonl"
    return {name: value for name, value in wiring.items() if name in defaults}
