"""`simulate`: the loopback hosts, served."""

import click

from kimi_helpers.simulator.server import serve


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8899, show_default=True, help="0 takes a free port.")
def simulate(port: int) -> None:
    """Run the loopback OpenRouter, whose true token ids are known, until interrupted."""
    try:
        serve(port)
    except OSError as error:
        raise click.UsageError(f"--port {port}: {error.strerror}") from None
