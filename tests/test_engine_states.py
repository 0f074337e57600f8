"""States from engines: what is sent, what is accepted, and a sentence for each fault that engines are known for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import save_file

from kimi_helpers.captures import Capture, CaptureError, eagle3_layers
from kimi_helpers.engine_states import EngineError, from_sglang, from_vllm, sglang_command, vllm_command
from tests.tiny_models import rows_of

ROW = rows_of([6])[0]
HIDDEN = 4
CAPTURE = Capture((1, 3, 4), 8, "pre", "float32")
LAST = Capture((), 8, "post", "float32")
STATES = torch.arange(6 * 4 * HIDDEN, dtype=torch.float32).reshape(6, 4, HIDDEN)


def client(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://engine/v1")


def vllm(folder: Path, states: torch.Tensor = STATES, ids: list[int] | None = None, **change: Any) -> httpx.Client:
    """A server that writes a file as vLLM's connector does."""
    path = folder / "x.safetensors"
    kept = ROW.ids.tolist() if ids is None else ids
    save_file({"hidden_states": states.contiguous(), "token_ids": torch.tensor(kept)}, path)
    Path(f"{path}.lock").touch()

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert request.url.path == "/v1/completions"
        assert body == {"model": "m", "prompt": ROW.ids.tolist(), "max_tokens": 1, "return_token_ids": True}
        choice = {"prompt_token_ids": body["prompt"]}
        told = {"choices": [choice], "kv_transfer_params": {"hidden_states_path": str(path)}}
        return httpx.Response(200, json=told | change)

    return client(answer)


def test_vllm_s_states_are_the_row_s(tmp_path: Path) -> None:
    captured = from_vllm(vllm(tmp_path), "m", ROW, CAPTURE, HIDDEN)
    assert torch.equal(captured.states, STATES)
    assert captured.row is ROW
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"states": STATES[:4]}, r"states of 4 of 6 tokens; the others came from a prefix cache"),
        ({"states": STATES[:, :3]}, r"3 states a token, not 4: the last layer's is missing, as in vLLM before #46973"),
        ({"states": STATES[:, :, :3]}, r"the shape \[6, 4, 3\], not \[6, 4, 4\]"),
        ({"states": STATES[:, 0]}, r"2 dimensions"),
        ({"states": torch.cat([STATES, STATES])}, r"the shape \[12, 4, 4\]"),
        ({"states": STATES.masked_fill(STATES == 37, float("nan"))}, r"token 2: layer 3 is NaN or infinite"),
        ({"ids": [1, 2, 3, 4, 5, 6]}, r"the file of vLLM ran other ids"),
        ({"choices": [{"prompt_token_ids": [1]}]}, r"vLLM ran other ids than were sent \(1, not 6\)"),
        ({"choices": [{}]}, r"vLLM does not return the ids it ran"),
        ({"choices": []}, r"vLLM does not return the ids it ran"),
        ({"kv_transfer_params": None}, r"without hidden_states_path; start it as vllm_command says"),
        ({"kv_transfer_params": {"hidden_states_path": "/nowhere/x"}}, r"engine and client must share that folder"),
    ],
)
def test_what_vllm_gets_wrong_is_told(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    with pytest.raises(CaptureError, match=rf"row 0 \('row-0'\).*{told}"):
        from_vllm(vllm(tmp_path, **change), "m", ROW, CAPTURE, HIDDEN)


def test_an_engine_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"the engine answered 500: .*no blocks left.*inflates the cache of MLA"):
        from_vllm(client(lambda _: httpx.Response(500, json={"error": "no blocks left"})), "m", ROW, CAPTURE, HIDDEN)
    with pytest.raises(EngineError, match=r"http://engine/v1/? did not answer"):
        from_vllm(client(lambda _: httpx.Response(200, text="<html>")), "m", ROW, CAPTURE, HIDDEN)
    with pytest.raises(EngineError, match="before the final norm; ask for last_norm pre"):
        from_vllm(vllm(tmp_path), "m", ROW, Capture((1, 3, 4), 8, "post"), HIDDEN)


def sglang(**meta: Any) -> httpx.Client:
    given = {"cached_tokens": 0, "hidden_states": [STATES[:, 3].tolist(), STATES[0, 3].tolist()]} | meta

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert (body["input_ids"], body["return_hidden_states"]) == (ROW.ids.tolist(), True)
        return httpx.Response(200, json={"text": "x", "meta_info": given})

    return client(answer)


def test_sglang_s_last_state_is_the_row_s() -> None:
    assert torch.equal(from_sglang(sglang(), ROW, LAST, HIDDEN).states[:, 0], STATES[:, 3])


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ({"cached_tokens": 4}, "4 tokens came from a cache"),
        ({"hidden_states": None}, "start it with --enable-return-hidden-states"),
        ({"hidden_states": [[[1.0], [1.0, 2.0]]]}, "not numbers in rows of one length"),
        ({"hidden_states": [STATES[:5, 3].tolist()]}, "states of 5 of 6 tokens"),
    ],
)
def test_what_sglang_gets_wrong_is_told(meta: dict[str, Any], told: str) -> None:
    with pytest.raises(EngineError, match=told):
        from_sglang(sglang(**meta), ROW, LAST, HIDDEN)


def test_sglang_gives_no_auxiliary_layers() -> None:
    with pytest.raises(EngineError, match="the last state alone, post-norm"):
        from_sglang(sglang(), ROW, CAPTURE, HIDDEN)


def test_the_launch_line_for_kimi_on_eight_gpus() -> None:
    line = vllm_command("moonshotai/Kimi-K2.5", Capture(eagle3_layers(61), 61), "/dev/shm/states")
    assert "--tensor-parallel-size 8" in line
    assert "--no-enable-prefix-caching" in line
    assert '"eagle_aux_hidden_state_layer_ids": [2, 30, 58, 61]' in line
    assert '"shared_storage_path": "/dev/shm/states"' in line
    assert "--disable-radix-cache" in sglang_command("moonshotai/Kimi-K2.5")
