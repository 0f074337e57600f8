"""Tiny models with random weights, of the architectures that are captured."""

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DeepseekV3Config,
    LlamaConfig,
    PreTrainedModel,
)

from kimi_helpers.capture_rows import CaptureRow

VOCABULARY = 300
HIDDEN = 32
LAYERS = 8


def _deepseek() -> DeepseekV3Config:
    return DeepseekV3Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=48, moe_intermediate_size=16, n_routed_experts=8,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=4, first_k_dense_replace=1, n_group=2,
        topk_group=1, num_experts_per_tok=2, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8,
        v_head_dim=8, max_position_embeddings=256,
    )  # fmt: skip


def tiny_model(kind: str) -> PreTrainedModel:
    """`llama`, `deepseek`, or `kimi-k2.5`: the whole model with its eyes."""
    torch.manual_seed(0)
    if kind == "llama":
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=LAYERS,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        )  # fmt: skip
        return AutoModelForCausalLM.from_config(config)
    if kind == "deepseek":
        return AutoModelForCausalLM.from_config(_deepseek())
    config = AutoConfig.for_model("kimi_k25")
    config.text_config = _deepseek()
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    for name, value in vision.items():
        setattr(config.vision_config, name, value)
    config.projection_hidden_size = 16
    return AutoModelForImageTextToText.from_config(config)


@cache
def _saved(kind: str, root: Path) -> Path:
    folder = root / kind
    model = tiny_model(kind)
    # random weights are so small that neither attention nor a norm would show
    for name, weights in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weights, 0.5, 1.5)
        elif weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.3)
    model.save_pretrained(folder)
    return folder


def tiny_folder(kind: str, root: Path) -> Path:
    """A model folder as a hub repository has it, made once."""
    return _saved(kind, root)


def rows_of(lengths: list[int], seed: int = 0, vocabulary: int = VOCABULARY) -> list[CaptureRow]:
    """Rows of random ids, half of them sampled."""
    rng = np.random.default_rng(seed)
    return [
        CaptureRow(
            index,
            f"row-{index}",
            rng.integers(0, vocabulary, length).astype(np.int32),
            (np.arange(length) >= length // 2).astype(np.uint8),
        )
        for index, length in enumerate(lengths)
    ]


def write_rows(path: Path, rows: list[CaptureRow], row_group_size: int = 4) -> Path:
    """The Parquet of the training stage, with a column that the capture does not read."""
    table = pa.table(
        {
            "row_id": pa.array([row.row_id for row in rows]),
            "input_ids": pa.array([row.ids.tolist() for row in rows], pa.list_(pa.int32())),
            "loss_mask": pa.array([row.mask.tolist() for row in rows], pa.list_(pa.uint8())),
            "grade": pa.array(["engine_ids"] * len(rows)),
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    return path
