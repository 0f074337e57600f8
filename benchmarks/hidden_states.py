"""How fast states are captured, beside the bare forward and beside the loop that trainers' dump scripts run.

    python benchmarks/hidden_states.py                         SmolLM2 on this CPU
    python benchmarks/hidden_states.py --model DIR --device cuda --compute bfloat16

Three ways on the same rows, in turns, the best of some rounds each: the bare forward of the backbone on the same
batches; the capture (hooks, states kept in bfloat16 without padding); and `output_hidden_states=True` on the whole
model, a row at a time, with logits, as dump scripts do. Ratios carry over to another machine, seconds do not.

With --device cuda it also compares the states with those of the CPU, and prints the memory that the GPU took.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

import click
import numpy as np
import torch

from kimi_helpers.capture_rows import CaptureRow, batches
from kimi_helpers.captures import Capture, eagle3_layers
from kimi_helpers.hidden_states import BATCH_TOKENS, capture_states
from kimi_helpers.target_models import Target, load_target, target_facts


def random_rows(target: Target, tokens: int, longest: int) -> list[CaptureRow]:
    """Rows of random ids, their lengths log-normal around a third of the longest."""
    rng = np.random.default_rng(0)
    rows: list[CaptureRow] = []
    while sum(row.ids.size for row in rows) < tokens:
        length = int(np.clip(rng.lognormal(np.log(longest / 3), 0.6), 8, longest))
        ids = rng.integers(0, target.facts.vocabulary, length).astype(np.int32)
        rows.append(CaptureRow(len(rows), str(len(rows)), ids, np.ones(length, np.uint8)))
    return rows


@torch.inference_mode()
def bare_forward(target: Target, rows: Sequence[CaptureRow], batch_tokens: int) -> None:
    """The backbone on the batches of the capture; nothing is kept."""
    for places in batches([row.ids.size for row in rows], batch_tokens):
        lengths = [rows[place].ids.size for place in places]
        ids = torch.zeros((len(places), max(lengths)), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for line, place in enumerate(places):
            ids[line, : lengths[line]] = torch.from_numpy(rows[place].ids)
            mask[line, : lengths[line]] = 1
        padded = min(lengths) < max(lengths)
        target.backbone(
            input_ids=ids.to(target.device),
            attention_mask=mask.to(target.device) if padded else None,
            use_cache=False,
        )
    _finish(target)


@torch.inference_mode()
def dump_loop(target: Target, rows: Sequence[CaptureRow], capture: Capture) -> None:
    """All states and all logits of a row at a time; then the layers are taken out of the tuple."""
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))[None].to(target.device)
        states = target.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
        kept = [states[number] for number in capture.numbers("hf")] + [states[-1]]
        torch.cat(kept, -1).to(torch.bfloat16).cpu()
    _finish(target)


def _finish(target: Target) -> None:
    if target.device.type == "cuda":
        torch.cuda.synchronize()


def _timed(way: Callable[[], object]) -> float:
    start = perf_counter()
    way()
    return perf_counter() - start


def compare_devices(target: Target, rows: Sequence[CaptureRow], capture: Capture) -> None:
    """Print how far the states are from those of the CPU in float32, relative to their norm."""
    exact = Capture(capture.layers, capture.total, capture.last_norm, "float32")
    on_cpu = load_target(target.facts, "cpu", "float32")
    few = sorted(rows, key=lambda row: row.ids.size)[:4]
    for here, there in zip(capture_states(target, few, exact), capture_states(on_cpu, few, exact), strict=True):
        off = ((here.states - there.states).norm(dim=-1) / there.states.norm(dim=-1)).amax(0)
        print(
            f"{here.row.ids.size} tokens: relative difference to the CPU by state {[f'{x:.1e}' for x in off.tolist()]}"
        )
    print(f"GPU memory at most {torch.cuda.max_memory_allocated() / 1e9:.2f} GB")


@click.command(help=__doc__)
@click.option("--model", default="smollm2", show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--compute", default="float32", show_default=True)
@click.option("--tokens", default=6_000, show_default=True, help="Of all rows.")
@click.option("--longest", default=1024, show_default=True, help="Tokens of a row at most.")
@click.option("--rounds", default=3, show_default=True)
def main(model: str, device: str, compute: str, tokens: int, longest: int, rounds: int) -> None:
    target = load_target(target_facts(model), device, compute)
    capture = Capture(eagle3_layers(target.facts.layers), target.facts.layers, "post")
    rows = random_rows(target, tokens, longest)
    count = sum(row.ids.size for row in rows)
    ways: dict[str, Callable[[], object]] = {
        "bare forward of the backbone, same batches": lambda: bare_forward(target, rows, BATCH_TOKENS),
        "capture": lambda: capture_states(target, rows, capture),
        "output_hidden_states=True, a row at a time, logits": lambda: dump_loop(target, rows, capture),
    }
    bare_forward(target, rows[:2], BATCH_TOKENS)
    taken = [[_timed(way) for way in ways.values()] for _ in range(rounds)]
    seconds = dict(zip(ways, map(min, zip(*taken, strict=True)), strict=True))
    bare = next(iter(seconds.values()))
    print(f"{target.facts.name}, {device}, {compute}: {len(rows)} rows, {count:,} tokens; best of {rounds}\n")
    print(f"{'':<54}{'tokens/s':>10}{'time of bare':>14}")
    for name, best in seconds.items():
        print(f"{name:<54}{count / best:>10.0f}{best / bare:>14.2f}")
    if target.device.type == "cuda":
        compare_devices(target, rows, capture)


if __name__ == "__main__":
    main()
