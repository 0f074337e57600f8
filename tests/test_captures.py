"""The numbering of layers: against figures that the trainers publish, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_helpers.captures import Capture, CaptureError, eagle3_layers, layers_from


def test_kimi_k25_in_every_system() -> None:
    capture = Capture(eagle3_layers(61), 61)
    assert capture.numbers("sglang") == [1, 29, 57]
    assert capture.described()["layers_vllm"] == [2, 30, 58, 61]
    assert capture.numbers("hf") == [2, 30, 58]
    assert layers_from("vllm", [2, 30, 58, 61], 61) == layers_from("sglang", [1, 29, 57], 61) == (1, 29, 57)


def test_a_token_of_kimi_k25_takes_57344_bytes() -> None:
    assert Capture(eagle3_layers(61), 61).token_bytes(7168) == 57_344
    assert Capture(eagle3_layers(61), 61, dtype="float32").token_bytes(7168) == 114_688


@given(st.integers(7, 200))
def test_eagle3_layers_are_what_sglang_and_speculators_take(total: int) -> None:
    layers = eagle3_layers(total)
    assert list(layers) == [1, total // 2 - 1, total - 4]  # SpecForge and Model-Optimizer
    assert Capture(layers, total).numbers("vllm") == [2, total // 2, total - 3]  # speculators
    assert len(set(layers)) == 3


@given(st.integers(2, 80).flatmap(lambda total: st.tuples(st.just(total), st.sets(st.integers(0, total - 1)))))
def test_numbers_come_back_from_every_system(model: tuple[int, set[int]]) -> None:
    total, layers = model
    capture = Capture(tuple(sorted(layers - {total - 1})), total)
    for system in ("sglang", "hf", "vllm"):
        assert layers_from(system, capture.numbers(system), total) == capture.layers  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: eagle3_layers(6), "a model of 6 layers has no three layers"),
        (lambda: layers_from("vllm", [0, 3], 8), "0 is no layer in the numbering of vllm, which has 1 to 8"),
        (lambda: layers_from("sglang", [8], 8), "8 is no layer in the numbering of sglang, which has 0 to 7"),
        (lambda: Capture((3, 1), 8), "not in ascending order"),
        (lambda: Capture((1, 8), 8), "layer 8 is not one of the model's layers 0 to 7"),
    ],
)
def test_what_is_no_layer_is_refused(call, told: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CaptureError, match=told):
        call()
