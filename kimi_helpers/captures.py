"""Which hidden states a drafter is trained on, and what each system calls them.

A state is the output of a decoder layer. Three conventions number them, and mixing them is off by one and silent:

* `sglang` (also SpecForge, TorchSpec and Model-Optimizer's `aux_layers`): layer i, from 0. This workspace counts so.
* `hf`: an index into `output_hidden_states`, where 0 is the embeddings, so layer i is i + 1. The last entry is another
  tensor: it comes after the final norm.
* `vllm` (also speculators): after k layers, 0 the embeddings, so layer i is i + 1. The last number, the count of the
  layers, is before the final norm.

The last state is written before the final norm (`pre`: speculators, vLLM) or after it (`post`: SpecForge,
Model-Optimizer's Hugging Face dump). Sources: SpecForge `[1, n//2-1, n-4]`, speculators `[2, n//2, n-3] + [n]`,
Model-Optimizer `compute_hidden_states_hf`; for 61 layers these are [1, 29, 57] and [2, 30, 58, 61], the same tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

System = Literal["sglang", "hf", "vllm"]
Norm = Literal["pre", "post"]
DType = Literal["bfloat16", "float16", "float32"]

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_FIRST = {"sglang": 0, "hf": 1, "vllm": 1}  # what a system calls layer 0


class CaptureError(ValueError):
    """States that cannot be captured as asked, or must not be trusted; the message says what and what to do."""


@dataclass(frozen=True)
class Capture:
    """Which states of a model are captured, and how they are kept.

    Attributes:
        layers: the auxiliary layers, each the output of layer i counted from 0, ascending. The output of the last layer
            is always captured as well.
        total: how many layers the model has.
        last_norm: whether the last state is taken before or after the final norm.
        dtype: in which the states are kept.
    """

    layers: tuple[int, ...]
    total: int
    last_norm: Norm = "pre"
    dtype: DType = "bfloat16"

    def __post_init__(self) -> None:
        if list(self.layers) != sorted(set(self.layers)):
            raise CaptureError(f"the layers {list(self.layers)} are not in ascending order, each once.")
        if outside := [layer for layer in self.layers if not 0 <= layer < self.total]:
            raise CaptureError(f"layer {outside[0]} is not one of the model's layers 0 to {self.total - 1}.")

    @property
    def states(self) -> int:
        """How many states a token has: the auxiliary ones and the last."""
        return len(self.layers) + 1

    def numbers(self, system: System) -> list[int]:
        """What a system calls the auxiliary layers."""
        return [layer + _FIRST[system] for layer in self.layers]

    def token_bytes(self, hidden: int) -> int:
        """Bytes of one token's states, for a hidden size: 57,344 for Kimi K2.5 in bfloat16."""
        return self.states * hidden * BYTES[self.dtype]

    def described(self) -> dict[str, Any]:
        """For a manifest: the layers in every numbering."""
        return {
            "layers_sglang": self.numbers("sglang"),
            "layers_vllm": [*self.numbers("vllm"), self.total],
            "layers_hf": self.numbers("hf"),
            "layers_of_model": self.total,
            "last_norm": self.last_norm,
            "dtype": self.dtype,
        }


def eagle3_layers(total: int) -> tuple[int, int, int]:
    """EAGLE-3's low, middle and high layer of a model with `total` layers, counted from 0.

    Raises:
        CaptureError: the model is so shallow that two of them would be one.
    """
    layers = (1, total // 2 - 1, total - 4)
    if not 1 < layers[1] < layers[2]:
        raise CaptureError(f"a model of {total} layers has no three layers for EAGLE-3; name the layers yourself.")
    return layers


def layers_from(system: System, numbers: Sequence[int], total: int) -> tuple[int, ...]:
    """The auxiliary layers that a system's numbers mean, counted from 0, ascending.

    vLLM's own number of the last state, which is the count of the layers, is left out: that state is always captured.

    Raises:
        CaptureError: a number is no layer's in that system, such as 0, the embeddings.
    """
    meant = sorted({number - _FIRST[system] for number in numbers if (system, number) != ("vllm", total)})
    if outside := [layer for layer in meant if not 0 <= layer < total]:
        low, high = _FIRST[system], total - 1 + _FIRST[system]
        raise CaptureError(
            f"{outside[0] + _FIRST[system]} is no layer in the numbering of {system}, which has {low} to {high} here."
        )
    return tuple(meant)
