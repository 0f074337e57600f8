"""Capture in process: against the model's own tuple of states, row by row, on three architectures and a real model."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from kimi_helpers import hidden_states, smollm2
from kimi_helpers.capture_rows import CaptureRow
from kimi_helpers.captures import Capture, CaptureError, eagle3_layers, layers_from
from kimi_helpers.hidden_states import capture_states
from kimi_helpers.target_models import Target, load_target, prove_conventions, target_facts
from tests.tiny_models import LAYERS, VOCABULARY, rows_of, tiny_folder

KINDS = ["llama", "deepseek", "kimi-k2.5"]
LENGTHS = [5, 40, 17, 39, 1, 40, 38, 3]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=KINDS)
def target(request: pytest.FixtureRequest, root: Path) -> Target:
    return load_target(target_facts(tiny_folder(request.param, root)), dtype="float32")


def own_states(target: Target, row: CaptureRow) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """What transformers itself gives for one row alone: its tuple, and the last layer's output before the norm."""
    before: list[torch.Tensor] = []
    handle = target.norm.register_forward_pre_hook(lambda _module, arguments: before.append(arguments[0]))
    with torch.inference_mode():
        out = target.backbone(input_ids=torch.from_numpy(row.ids).long()[None], output_hidden_states=True)
    handle.remove()
    return tuple(state[0] for state in out.hidden_states), before[0][0]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_rows_in_batches_have_the_states_they_have_alone(target: Target, norm: str) -> None:
    rows = rows_of(LENGTHS)
    capture = Capture(eagle3_layers(LAYERS), LAYERS, norm, "float32")  # type: ignore[arg-type]
    captured = capture_states(target, rows, capture, batch_tokens=160)
    for row, got in zip(rows, captured, strict=True):
        states, before = own_states(target, row)
        assert got.row is row
        assert got.states.shape == (row.ids.size, 4, target.facts.hidden)
        last = before if norm == "pre" else states[-1]
        wanted = torch.stack([*(states[number] for number in capture.numbers("hf")), last], 1)
        torch.testing.assert_close(got.states, wanted, rtol=1e-4, atol=1e-4)


def test_the_states_of_neighbouring_layers_differ_far_more_than_the_tolerance(target: Target) -> None:
    states, before = own_states(target, rows_of([40])[0])
    for one, other in pairwise(states[1:-1]):
        assert (one - other).norm() > 0.02 * one.norm()
    assert (before - states[-1]).norm() > 0.02 * before.norm()


def test_padding_is_masked_and_nothing_but_the_row_s_own_tokens_matters(target: Target) -> None:
    capture = Capture(eagle3_layers(LAYERS), LAYERS, "pre", "float32")
    rows = rows_of([40, 37])
    other = rows_of([40], seed=9)[0]
    one, two = (capture_states(target, [first, rows[1]], capture)[1].states for first in (rows[0], other))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_states_are_kept_in_the_dtype_asked_for(target: Target) -> None:
    rows = rows_of([9])
    kept = [
        capture_states(target, rows, Capture((1,), LAYERS, "pre", dtype))[0].states  # type: ignore[arg-type]
        for dtype in ("float32", "bfloat16")
    ]
    assert kept[1].dtype == torch.bfloat16
    assert torch.equal(kept[0].to(torch.bfloat16), kept[1])


def test_scores_are_those_of_the_whole_model(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_states, "HEAD_VALUES", 7 * VOCABULARY)  # seven positions at a time
    for got in capture_states(target, rows_of(LENGTHS), Capture((), LAYERS, dtype="float32"), top=3):
        ids = torch.from_numpy(got.row.ids).long()
        with torch.inference_mode():
            wanted = target.model(input_ids=ids[None]).logits[0].log_softmax(-1)
        scores = got.scores
        assert scores is not None
        assert math.isnan(scores.logprob[0])
        assert math.isnan(scores.best[0])
        of_next = wanted[:-1].gather(-1, ids[1:, None])[:, 0].numpy()
        np.testing.assert_allclose(scores.logprob[1:], of_next, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(scores.best[1:], wanted[:-1].max(-1).values.numpy(), rtol=1e-3, atol=1e-3)
        likeliest = wanted[:-1].topk(3)
        np.testing.assert_allclose(scores.top_logprobs[1:], likeliest.values.numpy(), rtol=1e-3, atol=1e-3)
        assert (scores.top_ids[1:, 0] == likeliest.indices[:, 0].numpy()).all()


def test_no_logits_are_made_unless_scores_are_asked_for(target: Target) -> None:
    calls = []
    handle = target.head.register_forward_hook(lambda *_: calls.append(1))
    capture_states(target, rows_of(LENGTHS), Capture((1,), LAYERS))
    handle.remove()
    assert calls == []


def test_no_hook_is_left_behind(target: Target) -> None:
    before = [len(layer._forward_hooks) for layer in target.layers]  # transformers has some of its own
    capture_states(target, rows_of(LENGTHS), Capture((1, 2), LAYERS))
    assert [len(layer._forward_hooks) for layer in target.layers] == before


def test_rows_of_another_vocabulary_or_too_long_are_named(target: Target) -> None:
    row = CaptureRow(7, "seven", np.array([1, VOCABULARY], np.int32), np.ones(2, np.uint8))
    with pytest.raises(CaptureError, match=r"row 7 \('seven'\) holds token id 300, but .* has 300 ids"):
        capture_states(target, [row], Capture((1,), LAYERS))
    with pytest.raises(CaptureError, match=r"row 0 \('row-0'\) has 257 tokens, but .* takes 256"):
        capture_states(target, rows_of([257]), Capture((1,), LAYERS))


def test_a_model_whose_layers_are_shifted_is_refused(root: Path) -> None:
    target = load_target(target_facts(tiny_folder("llama", root)), dtype="float32")
    target.norm.register_forward_hook(lambda _module, _arguments, output: output * 2)
    prove_conventions(target)  # a strange norm is the model's own
    target.backbone.register_forward_hook(_drop_first_state)
    with pytest.raises(CaptureError, match="the output of layer 0 is not state 1"):
        prove_conventions(target)


def _drop_first_state(_module: object, _arguments: object, output: dict[str, object]) -> dict[str, object]:
    output["hidden_states"] = output["hidden_states"][1:] + output["hidden_states"][-1:]  # type: ignore[index]
    return output


def test_a_folder_that_is_no_model_is_told(tmp_path: Path, root: Path) -> None:
    with pytest.raises(CaptureError, match="no model folder: it has no config"):
        target_facts(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(CaptureError, match="transformers does not know this model"):
        target_facts(tmp_path)
    facts = target_facts(tiny_folder("llama", root))
    with pytest.raises(CaptureError, match="there is no cuda:7 here"):
        load_target(facts, "cuda:7")


def test_the_revision_changes_with_the_weights(root: Path, tmp_path: Path) -> None:
    folder = tiny_folder("llama", root)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert target_facts(copy).revision == target_facts(folder).revision
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    assert target_facts(copy).revision != target_facts(folder).revision


def test_a_real_model_in_batches_and_alone() -> None:
    if not smollm2.is_available():
        pytest.skip(f"SmolLM2 is not installed: {smollm2.HOW}")
    target = load_target(target_facts("smollm2"), dtype="float32")
    assert (target.facts.layers, target.facts.hidden, target.facts.vocabulary) == (30, 576, 49152)
    layers = layers_from("vllm", [2, 15, 27, 30], 30)
    assert layers == layers_from("sglang", [1, 14, 26], 30) == eagle3_layers(30)
    rows = rows_of([30, 64, 61, 12], vocabulary=49152)
    for norm in ("pre", "post"):
        capture = Capture(layers, 30, norm, "float32")  # type: ignore[arg-type]
        for got in capture_states(target, rows, capture):
            states, before = own_states(target, got.row)
            wanted = [states[2], states[15], states[27], before if norm == "pre" else states[30]]
            for place, one in enumerate(wanted):
                assert (got.states[:, place] - one).norm() < 2e-5 * one.norm()
