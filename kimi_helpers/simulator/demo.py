"""A small generation run against the loopback hosts: replies whose true ids are known, in seconds."""

from pathlib import Path

from kimi_helpers.generation import Settings, run_generation
from kimi_helpers.prompts import read_prompts
from kimi_helpers.reply_sources import read_sources
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.scoring import fetch_truth, write_truth
from kimi_helpers.simulator.server import running
from kimi_helpers.workspace import DATA

MODEL = "moonshotai/kimi-k2.5"


def demo_run(folder: Path) -> tuple[Path, Path]:
    """Ask every loopback host for every prompt of `data/prompts/loopback.jsonl`, once.

    Returns:
        The journal and the file of true ids, both in `folder`; they are kept, and a second call asks for nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    journal, truth = folder / "journal.sqlite", folder / "truth.jsonl"
    settings = Settings("loopback", MODEL, max_tokens=16_384, temperature=1.0, top_p=0.95, seed=0)
    with running() as url:
        prompts = read_prompts(DATA / "prompts" / "loopback.jsonl")
        summary = run_generation(prompts, [host.slug for host in HOSTS], settings, journal, base_url=url)
        if summary.finished:
            ids = (reply.outcome.generation_id for reply in read_sources([journal]))
            write_truth(truth, fetch_truth(url, [id for id in ids if id]))
    return journal, truth
