"""The model whose states are captured: loaded without code of its own, and its conventions proven before it is used.

Any causal language model of transformers whose decoder has `layers` and a final `norm`: Llama and alike, DeepseekV3
(the backbone of Kimi K2), and the text part of `Kimi_K25ForConditionalGeneration`.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
)
from transformers.utils import logging as transformers_logging

from kimi_helpers.captures import CaptureError
from kimi_helpers.smollm2 import NAME, smollm2_folder

VOCABULARY_FILES = ("tiktoken.model", "tokenizer.json")
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf")
SAMPLE_BYTES = 65_536
PROBE_TOKENS = 8


@dataclass(frozen=True)
class TargetFacts:
    """What is known of a model before its weights are loaded.

    Attributes:
        folder: where it lies.
        name: its folder's name.
        revision: hex digest of the configuration and of samples of every weight file; it changes with the weights, but
            does not read terabytes.
        layers: how many decoder layers.
        hidden: the hidden size.
        vocabulary: how many rows the embeddings have.
        longest: the longest sequence it was made for.
        vocabulary_sha256: hex digest of its vocabulary file, or None where the folder has none.
    """

    folder: Path
    name: str
    revision: str
    layers: int
    hidden: int
    vocabulary: int
    longest: int
    vocabulary_sha256: str | None


@dataclass(frozen=True, eq=False)
class Target:
    """A loaded model.

    Attributes:
        model: in evaluation mode.
        facts: what is known of it.
    """

    model: Any
    facts: TargetFacts

    @cached_property
    def backbone(self) -> Any:
        """The decoder without its head, or the text part of a model that also sees."""
        return self.model.get_decoder()

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers."""
        layers: nn.ModuleList = self.backbone.layers
        return layers

    @property
    def norm(self) -> nn.Module:
        """The final norm."""
        norm: nn.Module = self.backbone.norm
        return norm

    @property
    def head(self) -> nn.Module:
        """From states after the final norm to logits."""
        head: nn.Module = self.model.get_output_embeddings()
        return head

    @property
    def device(self) -> torch.device:
        """Where the token ids go."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device


def target_facts(source: str | Path) -> TargetFacts:
    """Facts of the model in a folder, or of SmolLM2 from its package (`smollm2`).

    Raises:
        CaptureError: there is no model folder, or transformers does not know the model without code of its own.
    """
    folder = smollm2_folder() if str(source) == NAME else Path(source).expanduser()
    config = _config(folder)
    text = config.get_text_config()
    return TargetFacts(
        folder=folder,
        name=folder.resolve().name,
        revision=_revision(folder),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        vocabulary=text.vocab_size,
        longest=text.max_position_embeddings,
        vocabulary_sha256=next((_sha256(path) for name in VOCABULARY_FILES if (path := folder / name).is_file()), None),
    )


def _config(folder: Path) -> PreTrainedConfig:
    if not (folder / "config.json").is_file():
        raise CaptureError(f"{folder} is no model folder: it has no config.json; name one, or {NAME}.")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise CaptureError(f"{folder}: transformers does not know this model: {_first_line(error)}") from None
    assert isinstance(config, PreTrainedConfig)
    return config


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _revision(folder: Path) -> str:
    """Over the configuration, and name, size, and 16 samples of each weight file."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(path for path in folder.iterdir() if path.suffix in WEIGHT_SUFFIXES):
        size = path.stat().st_size
        digest.update(json.dumps([path.name, size]).encode())
        with path.open("rb") as file:
            for place in range(16):
                file.seek(max(0, size - SAMPLE_BYTES) * place // 15)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def load_target(facts: TargetFacts, device: str = "cpu", dtype: str = "bfloat16") -> Target:
    """Load a model for capture and prove its conventions.

    Args:
        facts: of `target_facts`.
        device: `cpu`, `cuda`, `cuda:1`, or `auto`: spread over all GPUs, which needs accelerate.
        dtype: in which it computes.

    Raises:
        CaptureError: it cannot be loaded, or its layers do not mean what the conventions say.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CaptureError(f"there is no {device} here; give --device cpu.")
    config = _config(facts.folder)
    auto: Any = AutoModelForCausalLM if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModelForImageTextToText
    try:
        with _quiet():
            model = auto.from_pretrained(
                facts.folder,
                local_files_only=True,
                trust_remote_code=False,
                dtype=getattr(torch, dtype),
                device_map="auto" if device == "auto" else None,
            )
    except (ValueError, OSError, ImportError) as error:
        raise CaptureError(f"{facts.folder} cannot be loaded: {_first_line(error)}") from None
    target = Target((model if device == "auto" else model.to(device)).eval(), facts)
    prove_conventions(target)
    return target


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars of transformers: the run shows its own."""
    logging: Any = transformers_logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def hooked(target: Target, layers: list[int], keep: Any) -> Iterator[None]:
    """While it lasts, `keep(place, states)` is called with each named layer's output, shape [rows, tokens, hidden]."""
    handles = [
        target.layers[layer].register_forward_hook(
            lambda _module, _arguments, output, place=place: keep(
                place, output[0] if isinstance(output, tuple) else output
            )
        )
        for place, layer in enumerate(layers)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.inference_mode()
def prove_conventions(target: Target) -> None:
    """Compare the output of every layer with transformers' own tuple of states, on a few tokens.

    Raises:
        CaptureError: a layer's output is not the state of its number, or the last one is not what the final norm takes.
    """
    if len(target.layers) != target.facts.layers:
        raise CaptureError(
            f"the model has {len(target.layers)} layers, but its configuration says {target.facts.layers}."
        )
    ids = torch.arange(PROBE_TOKENS, device=target.device)[None] % target.facts.vocabulary
    outputs: dict[int, Tensor] = {}
    with hooked(target, list(range(target.facts.layers)), outputs.__setitem__):
        states = target.backbone(input_ids=ids, use_cache=False, output_hidden_states=True)
    tuple_of_states = states.hidden_states
    for layer in range(target.facts.layers - 1):
        if not torch.equal(outputs[layer], tuple_of_states[layer + 1].to(outputs[layer].device)):
            raise CaptureError(
                f"the output of layer {layer} is not state {layer + 1} of transformers; do not capture it."
            )
    last = outputs[target.facts.layers - 1]
    if not torch.equal(target.norm(last).to(last.device), states.last_hidden_state.to(last.device)):
        raise CaptureError(
            "the final norm of the last layer's output is not the last state; do not capture this model."
        )
