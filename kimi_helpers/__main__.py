"""The command line: thin, one verb a stage. Exit code 0: done; 1: some rows failed; 2: the arguments are wrong."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import TYPE_CHECKING, Any

import click
import yaml

from kimi_helpers.formats import FORMATS, ModelFormat, PromptError
from kimi_helpers.rank_files import VocabularyError
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary, load_vocabulary
from kimi_helpers.workspace import NOTEBOOKS, OUTPUTS, ROOT, printable

if TYPE_CHECKING:
    from kimi_helpers.bulk_reconstruction import BulkSettings
    from kimi_helpers.graded_rows import GradedRow

SWITCHES = ("thinking", "preserve_thinking", "add_generation_prompt")

tokenizer_option = click.option(
    "--tokenizer",
    metavar="DIR",
    help="Folder with tiktoken.model and tokenizer_config.json, or a downloaded hub id.  [default: Kimi's own]",
)
format_option = click.option("--format", "format_name", type=click.Choice(sorted(FORMATS)), help="Layout of the model.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Kimi replies of chat-completions APIs, turned into graded token ids."""


@cache
def _load(tokenizer: str | None, format: ModelFormat) -> Vocabulary:
    try:
        return load_vocabulary(tokenizer, format.name)
    except VocabularyError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise _unusable(error, "read") from None


def _unusable(error: OSError, done: str) -> click.UsageError:
    return click.UsageError(f"{error.filename} cannot be {done}: {error.strerror}")


@main.command()
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
    from kimi_helpers import runner  # noqa: PLC0415  (papermill and nbconvert take seconds to import)

    paths = [_notebook(name) for name in notebooks] or sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    try:
        parameters = _parameters(files) | dict(given)
        runner.plan_parameters(paths, parameters)
        run_dir = _new_run_dir()
        wired = _wiring(paths, run_dir.relative_to(ROOT).as_posix(), parameters) | parameters
        try:
            runs = runner.run_pipeline(paths, wired, run_dir, cell_timeout=cell_timeout, progress=True)
        except runner.NotebookError:
            run_dir.rmdir()  # nothing has run, so nothing is in it
            raise
    except runner.NotebookError as error:
        raise click.UsageError(str(error)) from None
    for done in runs:
        click.echo(f"{done.verdict:<12} {done.notebook}  {done.seconds:.1f} s  {done.reason}".rstrip())
    click.echo(f"\nLook at {', '.join(_shown(done.html) for done in runs if done.html.exists()) or _shown(run_dir)}")
    sys.exit(runs[-1].verdict.exit_code)


def _notebook(name: str) -> Path:
    for path in (Path(name), NOTEBOOKS / name, NOTEBOOKS / f"{name}.ipynb"):
        with suppress(OSError):  # a name can be longer than the file system allows
            if path.is_file() and path.suffix == ".ipynb":
                return path
    known = ", ".join(path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb")))
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
    from kimi_helpers.runner import read_parameters  # noqa: PLC0415

    defaults = {name: parameter.default for path in paths for name, parameter in read_parameters(path).items()}
    values = defaults | {"out": run_dir} | given
    wiring = {"out": run_dir}
    if any(path.stem == "03_generation" for path in paths):
        wiring["replies"] = f"{values['out']}/journal.sqlite"
        if values.get("base_url") == "loopback":  # no other host tells the truth
            wiring["truth"] = f"{values['out']}/truth.jsonl"
    return {name: value for name, value in wiring.items() if name in defaults}


def _new_run_dir() -> Path:
    from kimi_helpers.run_record import new_run_dir  # noqa: PLC0415

    try:
        return new_run_dir(OUTPUTS)
    except OSError as error:
        raise _unusable(error, "written") from None


def _shown(path: Path) -> str:
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@tokenizer_option
@format_option
@click.option("--profile", type=click.Path(exists=True, dir_okay=False), help="What is known of hosts (TOML).")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, resolve_path=True, path_type=Path),
    help="JSON lines, or Parquet where it ends in .parquet.  [default: outputs/RUN/]",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes for Parquet.  [default: one a core]")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="What runs them, for Parquet.")
@click.option("--address", help="Of a Ray cluster.  [default: one on this machine]")
def reconstruct(
    paths: tuple[Path, ...],
    tokenizer: str | None,
    format_name: str | None,
    profile: str | None,
    out: Path | None,
    workers: int | None,
    engine: str,
    address: str | None,
) -> None:
    """Turn recorded replies (.json, .sse), folders of them, or journals into graded token ids.

    Without --profile the known serving stacks are tried on all replies of each host; those that explain all of them
    stay open, and ids are called exact only where all of these agree and the replies are not few.

    To Parquet any number of replies go in flat memory; then only the grades are printed.
    """
    from kimi_helpers.bulk_reconstruction import BulkSettings  # noqa: PLC0415
    from kimi_helpers.graded_rows import (  # noqa: PLC0415
        describe_as_returned,
        grade_replies,
        grades_by_provider,
        grades_text,
        table_text,
    )
    from kimi_helpers.journal import JournalError  # noqa: PLC0415
    from kimi_helpers.profile_choice import describe_profiles, profiles_of_batch  # noqa: PLC0415
    from kimi_helpers.profiles import ProfileError, read_profiles  # noqa: PLC0415
    from kimi_helpers.reply_sources import SourceError, find_sources, read_sources  # noqa: PLC0415
    from kimi_helpers.serving_stacks import known_stacks  # noqa: PLC0415

    def vocabulary_of(layout: ModelFormat) -> Vocabulary:
        return _load(tokenizer, layout)

    is_bulk = out is not None and out.suffix == ".parquet"
    if not is_bulk and (workers or address or engine != "local"):
        raise click.UsageError("--workers, --engine and --address are for Parquet; name an --out that ends in .parquet")
    if (engine == "ray" and workers) or (engine == "local" and address):
        raise click.UsageError("--workers goes with --engine local, and --address with --engine ray")
    try:
        sources = find_sources(paths)
        format = FORMATS[format_name] if format_name else None
        profiles = read_profiles(profile) if profile else {}
        unexplained: list[str] = []
        if not profile:
            batch = read_sources(sources)
            profiles, unexplained = profiles_of_batch(batch, vocabulary_of, known_stacks(), format)
        if is_bulk and out is not None:
            vocabulary_of(format or FORMATS["kimi-k2.5"])  # its faults are told before any process starts
            grades = _grade_to_parquet(
                sources, BulkSettings(profiles, tokenizer, format), out, workers, engine, address
            )
        else:
            rows = list(grade_replies(read_sources(sources), vocabulary_of, profiles, format))
            as_returned = grade_replies(read_sources(sources), vocabulary_of, {}, format)
            told = describe_as_returned(as_returned)
            grades = grades_by_provider(rows)
    except (ProfileError, SourceError, JournalError) as error:
        raise click.UsageError(str(error)) from None
    except UnknownSpecialToken as error:
        raise click.UsageError(f"{error}; give the tokenizer of the replies' model") from None
    except OSError as error:
        raise _unusable(error, "read") from None
    target = out or _new_run_dir() / "replies.jsonl"
    if is_bulk:
        click.echo(grades_text(grades))
    else:
        _write(target, rows)
        click.echo(f"{table_text(rows)}\n\n{told}")
    if not profile:
        click.echo(f"\n{describe_profiles(profiles, unexplained)}")
    click.echo(f"\nWrote {sum(sum(counts.values()) for counts in grades.values())} rows to {_shown(target)}")
    sys.exit(any(counts["failed"] for counts in grades.values()))


def _grade_to_parquet(
    sources: "Sequence[Path]",
    settings: "BulkSettings",
    out: Path,
    workers: int | None,
    engine: str,
    address: str | None,
) -> dict[str, dict[str, int]]:
    from kimi_helpers.bulk_encoding import EncoderMismatch  # noqa: PLC0415
    from kimi_helpers.bulk_reconstruction import ROWS_A_BATCH, local_workers, reconstruct_many  # noqa: PLC0415
    from kimi_helpers.cluster import ClusterError, reconstruct_on_cluster  # noqa: PLC0415
    from kimi_helpers.reply_sources import read_tables  # noqa: PLC0415

    _check_writable(out)
    try:
        if engine == "ray":
            return reconstruct_on_cluster(sources, settings, out, address)
        with local_workers(workers) as each:
            return reconstruct_many(read_tables(sources, ROWS_A_BATCH), settings, out, each)
    except ClusterError as error:
        raise click.UsageError(str(error)) from None
    except EncoderMismatch as error:
        raise click.ClickException(str(error)) from None


def _check_writable(target: Path) -> None:
    try:
        if target.exists() and not target.is_file():
            raise click.UsageError(f"{target} is a device or a pipe, which the file would replace; name another --out")
        target.parent.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(dir=target.parent).cleanup()
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}; name another --out") from None


def _write(target: Path, rows: "Sequence[GradedRow]") -> None:
    from kimi_helpers.graded_rows import write_rows  # noqa: PLC0415

    _check_writable(target)
    try:
        write_rows(target, rows)
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written: {error.strerror}; name another --out") from None


@main.command("prompt-ids")
@click.argument("conversations", type=click.File("rb"))
@tokenizer_option
@format_option
@click.option("--recognise-specials", is_flag=True, help="Special tokens spelled in messages become tokens.")
def prompt_ids(conversations: Any, tokenizer: str | None, format_name: str | None, recognise_specials: bool) -> None:
    """Print the prompt's token ids, a JSON list a line, for CONVERSATIONS (JSON lines; - for standard input).

    A line holds `messages` and where they apply `tools`, `format`, `thinking`, `preserve_thinking` and
    `add_generation_prompt`. A line that cannot be rendered gives null, and a sentence on standard error.
    """
    failed = False
    for number, line in enumerate(conversations, 1):
        if line.strip():
            try:
                click.echo(json.dumps(_prompt_ids(line, tokenizer, format_name, recognise_specials)))
            except (ValueError, RecursionError) as error:
                failed = True
                click.echo("null")
                click.echo(f"line {number}: {printable(str(error))}", err=True)
    sys.exit(failed)


def _prompt_ids(line: bytes, tokenizer: str | None, format_name: str | None, recognise_specials: bool) -> list[int]:
    row = _conversation(line)
    name = format_name or row.get("format") or "kimi-k2.5"
    if name not in FORMATS:
        raise PromptError(f"there is no format {name!r}; the formats are {', '.join(FORMATS)}")
    format = FORMATS[name]
    switches = {switch: row[switch] for switch in SWITCHES if row.get(switch) is not None}
    return format.prompt_ids(
        _load(tokenizer, format), row["messages"], row.get("tools"), recognise_specials=recognise_specials, **switches
    )


def _conversation(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"not JSON ({error}); write an object a line") from None
    if not isinstance(row, dict):
        raise PromptError("not a JSON object; write an object with a list of messages")
    kinds: dict[str, tuple[type | UnionType, str]] = {
        "messages": (list, "a list"),
        "tools": (list | None, "a list"),
        "format": (str | None, "a text"),
        **dict.fromkeys(SWITCHES, (bool | None, "true or false")),
    }
    for name, (kind, words) in kinds.items():
        if not isinstance(row.get(name), kind):
            raise PromptError(f"{name} must be {words}")
    return row


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8899, show_default=True, help="0 takes a free port.")
def simulate(port: int) -> None:
    """Run the loopback OpenRouter, whose true token ids are known, until interrupted."""
    from kimi_helpers.simulator.server import serve  # noqa: PLC0415

    try:
        serve(port)
    except OSError as error:
        raise click.UsageError(f"--port {port}: {error.strerror}") from None


@main.group()
def vocabulary() -> None:
    """Where a vocabulary comes from."""


@vocabulary.command()
@click.argument("hub_id")
@click.option("--revision", help="A full commit.  [default: the newest, which is printed]")
def download(hub_id: str, revision: str | None) -> None:
    """Fetch tiktoken.model and tokenizer_config.json of HUB_ID at one commit, and check them."""
    from kimi_helpers.vocabulary_download import commit_of, download_vocabulary  # noqa: PLC0415

    try:
        commit = revision or commit_of(hub_id)
        folder = download_vocabulary(hub_id, commit)
        loaded = load_vocabulary(folder)
    except VocabularyError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise _unusable(error, "written") from None
    click.echo(f"{hub_id} at {commit}: {loaded.ranks} ranks, {len(loaded.named)} named special tokens\n{folder}")


if __name__ == "__main__":
    main(prog_name="python -m kimi_helpers")
