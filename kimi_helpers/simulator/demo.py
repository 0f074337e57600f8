"""A small generation run against the loopback hosts: replies whose true ids are known, in seconds."""

from pathlib import Path
from tempfile import TemporaryDirectory

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

    Raises:
        FileExistsError: the folder holds a journal whose true ids are not known; it is left alone.
    """
    journal, truth = folder / "journal.sqlite", folder / "truth.jsonl"
    if journal.exists() and truth.exists():
        return journal, truth
    if journal.exists():
        raise FileExistsError(f"{journal} exists without {truth.name} beside it; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings("loopback", MODEL, max_tokens=16_384, temperature=1.0, top_p=0.95, seed=0, system="")
    # A server takes its truth with it when it stops, so both files appear together or not at all.
    with TemporaryDirectory(dir=folder) as beside, running() as url:
        replies, true_ids = Path(beside, journal.name), Path(beside, truth.name)
        prompts = read_prompts(DATA / "prompts" / "loopback.jsonl")
        run_generation(prompts, [host.slug for host in HOSTS], settings, replies, base_url=url)
        ids = (reply.outcome.generation_id for reply in read_sources([replies]))
        write_truth(true_ids, fetch_truth(url, [id for id in ids if id]))
        true_ids.replace(truth)
        replies.replace(journal)
    return journal, truth
