"""vLLM's hidden-state connector where there is no CUDA: the same file, written at once and not through a stream."""

import os
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):
    def _submit_async_write(self, pending: PendingSave) -> None:
        assert self._kv_cache is not None
        offsets = torch.arange(self._block_size)
        blocks = torch.tensor(pending.block_ids)
        slots = (offsets[None] + blocks[:, None] * self._block_size).flatten()
        states = extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids))
        save_file({"hidden_states": states.contiguous(), "token_ids": pending.token_ids.contiguous()}, pending.filename)
        if (lock := self._lock_fds.pop(pending.req_id, None)) is not None:
            os.close(lock)
        self._req_copy_events[pending.req_id] = SimpleNamespace(query=lambda: True)
