"""Replies that a model samples in process: their true ids are known, so reconstruction can be scored on them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from kimi_helpers.capture_rows import CaptureRow
from kimi_helpers.formats import END_TURN, ModelFormat
from kimi_helpers.prompts import Prompt
from kimi_helpers.replies import Failure, Reply, parse_reply
from kimi_helpers.target_models import Target
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import write_whole


@dataclass(frozen=True)
class SampledReply:
    """One reply with its true ids.

    Attributes:
        prompt: what was asked.
        prompt_ids: shape [p].
        ids: what the model sampled, shape [n]; the end token last, unless the reply was cut.
        ended: whether it ends in the end token.
    """

    prompt: Prompt
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    ended: bool


@torch.inference_mode()
def sample_replies(
    target: Target,
    vocabulary: Vocabulary,
    format: ModelFormat,
    prompts: Sequence[Prompt],
    most: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> list[SampledReply]:
    """Ask the model all prompts at once.

    Args:
        most: tokens of a reply.
        temperature: 0 takes the likeliest token each time.
        seed: of torch's generator.
    """
    torch.manual_seed(seed)
    asked = [format.prompt_ids(vocabulary, prompt.messages, prompt.tools or None) for prompt in prompts]
    end, width = vocabulary.special_id(END_TURN), max(map(len, asked))
    ids = torch.tensor(
        [[end] * (width - len(one)) + one for one in asked]
    )  # on the left: all go on from the last place
    mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in asked])
    said = target.model.generate(
        input_ids=ids.to(target.device),
        attention_mask=mask.to(target.device),
        max_new_tokens=most,
        do_sample=temperature > 0,
        **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature > 0 else {}),
        eos_token_id=end,
        pad_token_id=end,
    )[:, width:]
    replies = []
    for prompt, one, sampled in zip(prompts, asked, said.tolist(), strict=True):
        stop = sampled.index(end) + 1 if end in sampled else len(sampled)
        replies.append(SampledReply(prompt, tuple(one), tuple(sampled[:stop]), end in sampled))
    return replies


def as_api_reply(sampled: SampledReply, vocabulary: Vocabulary, model: str) -> Reply | Failure:
    """The reply as a faithful host returns it: text, a finish reason and counts, no ids."""
    said = sampled.ids[:-1] if sampled.ended else sampled.ids
    usage = {"prompt_tokens": len(sampled.prompt_ids), "completion_tokens": len(sampled.ids)}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": vocabulary.decode(said)},
        "finish_reason": "stop" if sampled.ended else "length",
    }
    body = {"id": sampled.prompt.id, "model": model, "provider": "in process", "choices": [choice], "usage": usage}
    return parse_reply(json.dumps(body).encode())


def training_row(index: int, sampled: SampledReply) -> CaptureRow:
    """The row with the true ids: 0 in the mask on the prompt, 1 on what was sampled."""
    ids = np.array(sampled.prompt_ids + sampled.ids, np.int32)
    mask = (np.arange(ids.size) >= len(sampled.prompt_ids)).astype(np.uint8)
    return CaptureRow(index, sampled.prompt.id, ids, mask)


def write_training_rows(path: Path, sampled: Sequence[SampledReply]) -> Path:
    """The rows of sampled replies as the training stage lays them down."""
    rows = [training_row(index, reply) for index, reply in enumerate(sampled)]
    table = pa.table(
        {
            "row_id": [row.row_id for row in rows],
            "input_ids": pa.array([row.ids for row in rows], pa.list_(pa.int32())),
            "loss_mask": pa.array([row.mask for row in rows], pa.list_(pa.uint8())),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_whole(path, sink.getvalue().to_pybytes())
    return path
