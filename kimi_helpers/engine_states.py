"""States from an engine, for a model that does not fit in this process: ids are sent, states come back, checked.

vLLM: the `extract_hidden_states` method with its file connector writes `token_ids` [L] and `hidden_states` [L, k+1, H]
to a folder that client and engine share; the last state is before the final norm. SGLang: `/generate` with
`return_hidden_states` gives the last state alone, as lists; its auxiliary layers come only through SpecForge's patched
server.

What is known to go wrong, each a sentence here: a prefix-cache hit cuts the states (SpecForge commit c7fc438e); vLLM
before #46973 gives K2.5 one state fewer (#48124); MLA targets inflate the cache (#53243); NaN poisons a training
(speculators #966).
"""

import fcntl
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from kimi_helpers.capture_rows import CaptureRow
from kimi_helpers.capture_runs import check_finite
from kimi_helpers.captures import Capture, CaptureError
from kimi_helpers.hidden_states import CapturedRow

TIMEOUT = 600.0


class EngineError(CaptureError):
    """An engine that gave no states, or states that must not be trusted; the message says what and what to do."""


def vllm_command(model: str, capture: Capture, folder: str, gpus: int = 8, extra: Sequence[str] = ()) -> str:
    """The command line that serves a model with extraction of these states into a shared folder.

    Prefix caching is off: a hit would leave the cached tokens without states.
    """
    layers = [*capture.numbers("vllm"), capture.total]
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}},
    }
    connector = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": folder},
    }
    return shlex.join(
        [
            *("vllm", "serve", model, "--tensor-parallel-size", str(gpus), "--no-enable-prefix-caching"),
            *("--no-enable-chunked-prefill", "--speculative_config", json.dumps(speculative)),
            *("--kv_transfer_config", json.dumps(connector), *extra),
        ]
    )


def sglang_command(model: str, gpus: int = 8, extra: Sequence[str] = ()) -> str:
    """The command line that serves a model whose last states can be asked for. The radix cache is off, as above."""
    return shlex.join(
        [
            *("python", "-m", "sglang.launch_server", "--model-path", model, "--tp-size", str(gpus)),
            *("--enable-return-hidden-states", "--disable-radix-cache", "--skip-tokenizer-init", *extra),
        ]
    )


def from_vllm(
    client: httpx.Client, model: str, row: CaptureRow, capture: Capture, hidden: int, keep_file: bool = False
) -> CapturedRow:
    """The states of one row from a vLLM server of `vllm_command`.

    Args:
        client: with the server's base URL, such as `http://127.0.0.1:8000/v1`.
        model: its name there.
        hidden: the hidden size, to check the shape.
        keep_file: leave the engine's file in the shared folder.

    Raises:
        EngineError: no answer, another row's ids, a wrong shape, NaN or infinity.
    """
    if capture.last_norm != "pre":
        raise EngineError("vLLM gives the last state before the final norm; ask for last_norm pre.")
    body = {"model": model, "prompt": row.ids.tolist(), "max_tokens": 1, "return_token_ids": True}
    answer = _post(client, "completions", body, row)
    _check_ids((answer.get("choices") or [{}])[0].get("prompt_token_ids"), row, "vLLM")
    path = (answer.get("kv_transfer_params") or {}).get("hidden_states_path")
    if not isinstance(path, str):
        raise EngineError(
            f"{_named(row)}: vLLM answered without hidden_states_path; start it as vllm_command says (0.18 or newer)."
        )
    loaded = _load(Path(path), row)
    if not keep_file:
        Path(path).unlink(missing_ok=True)
        Path(f"{path}.lock").unlink(missing_ok=True)
    _check_ids(loaded["token_ids"].tolist(), row, "the file of vLLM")
    return checked(row, loaded["hidden_states"], capture, hidden)


def from_sglang(client: httpx.Client, row: CaptureRow, capture: Capture, hidden: int) -> CapturedRow:
    """The last state of one row from an SGLang server of `sglang_command`; it comes after the final norm.

    Raises:
        EngineError: as `from_vllm`; auxiliary layers were asked for, which the plain server does not give.
    """
    if capture.layers or capture.last_norm != "post":
        raise EngineError(
            "SGLang's server gives the last state alone, post-norm; for the auxiliary layers take vLLM, or SpecForge's"
            " patched server."
        )
    body = {
        "input_ids": row.ids.tolist(),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_hidden_states": True,
    }
    meta = _post(client, "generate", body, row).get("meta_info") or {}
    if (cached := meta.get("cached_tokens") or 0) > 0:
        raise EngineError(
            f"{_named(row)}: {cached} tokens came from a cache and have no states; disable the radix cache."
        )
    given = meta.get("hidden_states")
    if not given:
        raise EngineError(
            f"{_named(row)}: SGLang answered without states; start it with --enable-return-hidden-states."
        )
    try:
        states = torch.tensor(given[0], dtype=torch.float32)  # the prompt; what follows are decoded tokens
    except (TypeError, ValueError):
        raise EngineError(f"{_named(row)}: SGLang's states are not numbers in rows of one length.") from None
    return checked(row, states[:, None] if states.dim() == 2 else states, capture, hidden)


def checked(row: CaptureRow, states: Tensor, capture: Capture, hidden: int) -> CapturedRow:
    """The states of a row, once shape and values are as they must be.

    Args:
        states: as the engine gives them, hoped to be [tokens, states, hidden].

    Raises:
        EngineError: they are not.
        CaptureError: one is NaN or infinite.
    """
    wanted = (row.ids.size, capture.states, hidden)
    if states.dim() != 3:
        raise EngineError(
            f"{_named(row)}: the states have {states.dim()} dimensions, not tokens x states x hidden size."
        )
    tokens, count, size = states.shape
    if tokens < row.ids.size:
        raise EngineError(
            f"{_named(row)}: states of {tokens} of {row.ids.size} tokens; the others came from a prefix cache, or the"
            " prefill was cut in chunks. Turn prefix caching and chunked prefill off."
        )
    if count == capture.states - 1:
        raise EngineError(
            f"{_named(row)}: {count} states a token, not {capture.states}: the last layer's is missing, as in vLLM"
            " before #46973 for DeepSeek-V3 and Kimi. Take a newer vLLM."
        )
    if tuple(states.shape) != wanted:
        raise EngineError(f"{_named(row)}: the states have the shape {[tokens, count, size]}, not {list(wanted)}.")
    captured = CapturedRow(row, states.to(getattr(torch, capture.dtype)))
    check_finite(captured, capture)
    return captured


def _named(row: CaptureRow) -> str:
    return f"row {row.index} ({row.row_id!r})"


def _post(client: httpx.Client, path: str, body: dict[str, Any], row: CaptureRow) -> dict[str, Any]:
    try:
        response = client.post(path, json=body, timeout=TIMEOUT)
        answer = response.json() if response.content else None
    except (httpx.HTTPError, ValueError) as error:
        raise EngineError(f"{_named(row)}: the engine at {client.base_url} did not answer: {error!r}") from None
    if response.status_code != 200 or not isinstance(answer, dict):
        told = " ".join(response.text.split())[:300]
        raise EngineError(
            f"{_named(row)}: the engine answered {response.status_code}: {told}. If it ran out of cache memory:"
            " extraction inflates the cache of MLA models (vllm-project/vllm#53243); send shorter rows or add GPUs."
        )
    return answer


def _check_ids(given: Any, row: CaptureRow, who: str) -> None:
    if given is None:
        raise EngineError(f"{_named(row)}: {who} does not return the ids it ran; nothing shows whose states these are.")
    if given != row.ids.tolist():
        raise EngineError(f"{_named(row)}: {who} ran other ids than were sent ({len(given)}, not {row.ids.size}).")


def _load(path: Path, row: CaptureRow) -> dict[str, Tensor]:
    """The engine's file, once its writer has let go of the lock beside it."""
    try:
        with Path(f"{path}.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            loaded = load_file(path)
    except (OSError, SafetensorError) as error:
        raise EngineError(
            f"{_named(row)}: {path} cannot be read ({error}); engine and client must share that folder, which may"
            " be full."
        ) from None
    if missing := {"token_ids", "hidden_states"} - loaded.keys():
        raise EngineError(f"{_named(row)}: {path} lacks {', '.join(sorted(missing))}.")
    return loaded
