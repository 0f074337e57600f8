"""Capture in process: the states of training rows, by hooks on the layers asked for and nothing else.

The ids that run through the model are the row's own: nothing is tokenised here. Rows of like length share a batch,
padded on the right; padding is masked, and never kept. The logits of a whole row are never built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from kimi_helpers.capture_rows import CaptureRow, batches
from kimi_helpers.captures import Capture, CaptureError
from kimi_helpers.target_models import Target, hooked

BATCH_TOKENS = 4096
HEAD_VALUES = 16_000_000  # logits that exist at one time: 64 MB in float32


@dataclass(frozen=True, eq=False)
class TokenScores:
    """What the model thinks of a row's tokens, each given all before it; the first token of a row has none.

    Attributes:
        logprob: natural logarithm of each token's probability, float32, shape [n]; NaN for the first.
        best: that of the likeliest token in its place, float32, shape [n]; NaN for the first.
        top_ids: the likeliest tokens in each token's own place, int32, shape [n, k].
        top_logprobs: theirs, float32, shape [n, k].
    """

    logprob: np.ndarray
    best: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray


@dataclass(frozen=True, eq=False)
class CapturedRow:
    """The states of one row.

    Attributes:
        row: the row.
        states: shape [tokens, states, hidden]: the auxiliary layers in order, then the last state.
        scores: None where they were not asked for.
    """

    row: CaptureRow
    states: Tensor
    scores: TokenScores | None = None


def capture_states(
    target: Target,
    rows: Sequence[CaptureRow],
    capture: Capture,
    batch_tokens: int = BATCH_TOKENS,
    top: int | None = None,
) -> list[CapturedRow]:
    """The states of rows, in their order.

    Args:
        target: the model.
        rows: what runs through it; the batches depend on them alone.
        capture: which states, and in which dtype they are kept.
        batch_tokens: the most tokens that run together, padding included.
        top: also score each token, and keep so many of the likeliest in its place (0: none); None: no scores.

    Raises:
        CaptureError: a row is longer than the model takes, or holds an id that it has no embedding for.
    """
    for row in rows:
        _check_fits(row, target)
    starts = [0, *accumulate(row.ids.size for row in rows)]
    on_gpu = target.device.type == "cuda"
    states = torch.empty(
        (starts[-1], capture.states, target.facts.hidden), dtype=getattr(torch, capture.dtype), pin_memory=on_gpu
    )
    scores: dict[int, TokenScores] = {}
    for places in batches([row.ids.size for row in rows], batch_tokens):
        kept = [states[starts[place] : starts[place + 1]] for place in places]
        last = _run(target, [rows[place].ids for place in places], capture, kept)
        if top is not None:
            for place, row_last in zip(places, last, strict=True):
                scores[place] = score_tokens(target, rows[place].ids, row_last[: rows[place].ids.size], top)
    if on_gpu:
        torch.cuda.synchronize()  # the copies of the last batch
    return [
        CapturedRow(row, states[starts[place] : starts[place + 1]], scores.get(place)) for place, row in enumerate(rows)
    ]


def _check_fits(row: CaptureRow, target: Target) -> None:
    if row.ids.size > target.facts.longest:
        raise CaptureError(
            f"row {row.index} ({row.row_id!r}) has {row.ids.size} tokens, but {target.facts.name} takes"
            f" {target.facts.longest}; leave it out of the training set."
        )
    if (largest := int(row.ids.max())) >= target.facts.vocabulary:
        raise CaptureError(
            f"row {row.index} ({row.row_id!r}) holds token id {largest}, but {target.facts.name} has"
            f" {target.facts.vocabulary} ids: the rows are of another vocabulary."
        )


@torch.inference_mode()
def _run(target: Target, rows: Sequence[np.ndarray], capture: Capture, kept: Sequence[Tensor]) -> Tensor:
    """One batch; its states go into `kept`, a tensor a row. Gives the states after the final norm, padding included."""
    lengths = [row.size for row in rows]
    ids = torch.zeros((len(rows), max(lengths)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : row.size] = torch.from_numpy(row)
        mask[place, : row.size] = 1

    def keep(place: int, states: Tensor) -> None:
        for row, tensor in enumerate(kept):
            tensor[:, place].copy_(states[row, : lengths[row]].to(tensor.dtype), non_blocking=True)

    hooks = list(capture.layers) + ([target.facts.layers - 1] if capture.last_norm == "pre" else [])
    padded = min(lengths) < max(lengths)
    with hooked(target, hooks, keep):
        last: Tensor = target.backbone(
            input_ids=ids.to(target.device),
            attention_mask=mask.to(target.device) if padded else None,
            use_cache=False,
        ).last_hidden_state
    if capture.last_norm == "post":
        keep(len(capture.layers), last)
    return last


@torch.inference_mode()
def score_tokens(target: Target, ids: np.ndarray, last: Tensor, top: int) -> TokenScores:
    """Log-probabilities of a row's tokens, from its states after the final norm, a few positions at a time.

    Args:
        last: shape [n, hidden].
        top: how many of the likeliest tokens of each place are kept.
    """
    n = ids.size
    logprob, best = (np.full(n, np.nan, np.float32) for _ in range(2))
    top_ids = np.zeros((n, top), np.int32)
    top_logprobs = np.full((n, top), np.nan, np.float32)
    step = max(1, HEAD_VALUES // target.facts.vocabulary)
    next_ids = torch.from_numpy(ids[1:].astype(np.int64))
    for start in range(0, n - 1, step):
        stop = min(n - 1, start + step)
        logits = target.head(last[start:stop]).float()
        total = logits.logsumexp(-1)
        there = slice(start + 1, stop + 1)
        chosen = logits.gather(-1, next_ids[start:stop, None].to(logits.device))[:, 0]
        logprob[there] = (chosen - total).cpu().numpy()
        best[there] = (logits.max(-1).values - total).cpu().numpy()
        if top:
            likeliest = logits.topk(top)
            top_ids[there] = likeliest.indices.cpu().numpy()
            top_logprobs[there] = (likeliest.values - total[:, None]).cpu().numpy()
    return TokenScores(logprob, best, top_ids, top_logprobs)
