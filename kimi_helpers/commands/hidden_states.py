"""`hidden-states`: training rows -> the target model's states, for a trainer."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import torch
from tqdm import tqdm

from kimi_helpers.capture_cluster import capture_on_cluster
from kimi_helpers.capture_rows import UNIT_TOKENS, Unit
from kimi_helpers.capture_runs import CaptureSettings, Perform, capture_locally, make_capture
from kimi_helpers.captures import BYTES, Capture, CaptureError, eagle3_layers, layers_from
from kimi_helpers.cluster import ClusterError
from kimi_helpers.commands.shared import new_run_folder, shown
from kimi_helpers.hidden_states import BATCH_TOKENS
from kimi_helpers.state_files import FORMATS
from kimi_helpers.target_models import target_facts

DTYPES = click.Choice(list(BYTES))


@click.command("hidden-states")
@click.argument("rows", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", default="smollm2", show_default=True, help="Model folder; smollm2 comes from its package.")
@click.option("--layers", help="Auxiliary layers, with commas.  [default: EAGLE-3's low, middle and high]")
@click.option(
    "--numbering",
    type=click.Choice(["sglang", "hf", "vllm"]),
    default="sglang",
    show_default=True,
    help="Whose numbers --layers are: output of layer i from 0 (sglang), or one more (hf, vllm).",
)
@click.option("--last-norm", type=click.Choice(["pre", "post"]), help="Last state.  [default: as the format has it]")
@click.option("--format", "format_name", type=click.Choice(list(FORMATS)), default="shards", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, resolve_path=True), help="Folder.  [default: outputs/RUN/]")
@click.option("--dtype", type=DTYPES, default="bfloat16", show_default=True, help="In which states are kept.")
@click.option("--compute", type=DTYPES, help="In which the model computes.  [default: bfloat16, on a CPU float32]")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N, or auto: all GPUs for one model.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many rows, the first ones.")
@click.option("--top", type=click.IntRange(min=0), help="Keep log-probabilities too, and so many likeliest tokens.")
@click.option("--batch-tokens", type=click.IntRange(min=1), default=BATCH_TOKENS, show_default=True)
@click.option("--unit-tokens", type=click.IntRange(min=1), default=UNIT_TOKENS, show_default=True)
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--address", help="Of a Ray cluster.  [default: one on this machine]")
@click.option("--verify", is_flag=True, help="Hash what is there, and capture again what is not as recorded.")
def hidden_states(
    rows: Path,
    model: str,
    layers: str | None,
    numbering: str,
    last_norm: str | None,
    format_name: str,
    out: Path | None,
    dtype: str,
    compute: str | None,
    device: str,
    limit: int | None,
    top: int | None,
    batch_tokens: int,
    unit_tokens: int,
    engine: str,
    address: str | None,
    verify: bool,
) -> None:
    """Capture the hidden states of ROWS (Parquet of the training stage), for an EAGLE-3 trainer.

    The same call on the same --out goes on where a run broke off, and writes the same bytes.
    """
    if address and engine == "local":
        raise click.UsageError("--address goes with --engine ray")
    try:
        facts = target_facts(model)
        chosen = layers_from(numbering, _numbers(layers), facts.layers) if layers else eagle3_layers(facts.layers)  # type: ignore[arg-type]
        norm = last_norm or FORMATS[format_name].last_norm or "pre"
        settings = CaptureSettings(
            rows=rows.resolve(),
            out=out or new_run_folder() / "hidden_states",
            facts=facts,
            capture=Capture(chosen, facts.layers, norm, dtype),  # type: ignore[arg-type]
            format=format_name,
            device=device,
            compute=compute or ("float32" if device == "cpu" else "bfloat16"),
            batch_tokens=batch_tokens,
            unit_tokens=unit_tokens,
            limit=limit,
            top=top,
            threads=torch.get_num_threads(),
        )
        perform = partial(capture_on_cluster, address=address) if engine == "ray" else capture_locally
        done = make_capture(settings, _with_bar(perform), verify, click.echo)
    except (CaptureError, ClusterError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        told = error.strerror or str(error)
        raise click.ClickException(
            f"{error.filename or out}: {told}. What is whole stays; run it again to go on."
        ) from None
    click.echo(
        f"{done.plan.rows:,} rows in {len(done.plan.units):,} units, {done.captured:,} of them captured now;"
        f" {done.bytes / 1e9:,.3f} GB\n{shown(settings.out)}"
    )


def _numbers(layers: str) -> list[int]:
    try:
        return [int(number) for number in layers.split(",")]
    except ValueError:
        raise click.UsageError(f"--layers {layers}: give numbers with commas, such as 1,29,57") from None


def _with_bar(perform: Perform) -> Perform:
    def performed(settings: CaptureSettings, todo: list[Unit]) -> Iterator[int]:
        yield from tqdm(perform(settings, todo), total=len(todo), unit="unit")

    return performed
