"""`generate`: prompts -> a journal of replies."""

import sys
from pathlib import Path

import click

from kimi_helpers.apis import OpenRouterError
from kimi_helpers.commands.shared import shown
from kimi_helpers.estimates import estimate
from kimi_helpers.generation import Limits, RunStopped, Settings, run_generation
from kimi_helpers.journal import JournalError
from kimi_helpers.openrouter import BASE_URL, MAX_TOKENS, call_plainly
from kimi_helpers.prompts import PromptFileError, read_prompts


@click.command()
@click.argument("prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--journal", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Begun, or gone on with."
)
@click.option("--model", default="moonshotai/kimi-k2.5", show_default=True)
@click.option("--provider", "providers", multiple=True, help="Slug of an endpoint, e.g. chutes/int4; may be repeated.")
@click.option("--unpinned", is_flag=True, help="Leave the provider to the gateway; such replies are for reading only.")
@click.option("--base-url", default=BASE_URL, show_default=True)
@click.option("--dataset", help="Name of the prompt set.  [default: the file's]")
@click.option("--samples", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--max-tokens", default=MAX_TOKENS, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", type=int, help="Of the first sample.  [default: none is sent]")
@click.option("--concurrency", default=8, show_default=True, type=click.IntRange(min=1))
@click.option("--dollars", type=float, help="The most that the journal's requests may cost together.")
@click.option("--seconds", type=float, help="After which nothing new is asked.")
@click.option("--dry-run", is_flag=True, help="Say what it would come to at most, and ask nothing.")
def generate(
    prompts: Path,
    journal: Path,
    model: str,
    providers: tuple[str, ...],
    unpinned: bool,
    base_url: str,
    dataset: str | None,
    samples: int,
    max_tokens: int,
    seed: int | None,
    concurrency: int,
    dollars: float | None,
    seconds: float | None,
    dry_run: bool,
) -> None:
    """Ask providers for replies to PROMPTS (JSON lines); what comes back is kept byte for byte in a journal."""
    settings = Settings(dataset or prompts.stem, model, max_tokens, seed=seed, unpinned=unpinned)
    limits = Limits(dollars=dollars, seconds=seconds)
    try:
        asked = read_prompts(prompts)
        if dry_run:
            most = call_plainly(estimate, base_url, asked, providers, settings, journal, samples=samples)
            price = "no price is listed" if most.dollars is None else f"{most.dollars:.2f} dollars"
            click.echo(
                f"At most {most.requests:,} requests, {most.tokens:,} tokens, {price}; "
                f"{most.already_finished:,} replies are there already."
            )
            return
        done = run_generation(
            asked,
            providers,
            settings,
            journal,
            base_url=base_url,
            samples=samples,
            concurrency=concurrency,
            limits=limits,
        )
    except KeyboardInterrupt:
        click.echo(f"Interrupted: what is finished is kept in {shown(journal)}; run again to go on.", err=True)
        sys.exit(130)
    except RunStopped as error:
        raise click.ClickException(str(error)) from None
    except (OpenRouterError, JournalError, PromptFileError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    failed = sum(done.failed.values())
    click.echo(
        f"{done.finished:,} replies, {failed:,} failed, {done.already_finished:,} were there already; "
        f"{done.cost:.4f} dollars. {shown(journal)}"
    )
    if done.stopped:
        click.echo(f"The run ended early: {done.stopped}.")
    sys.exit(1 if failed or done.stopped else 0)
