"""Exchanges with every loopback host, streamed and not, as they would be kept."""

import json
from functools import cache
from itertools import product
from typing import Any

import httpx

from kimi_helpers.reply_tables import RawReply
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.server import running
from tests.simulator_api import WEATHER, body

ASKED: tuple[dict[str, Any], ...] = (
    {"said": "Explain a cache."},
    {"said": "What is the weather in Oslo?", "tools": [WEATHER]},
    {"said": "What is the weather in Rome?", "tools": [WEATHER], "tool_choice": "required"},
    {"said": "Prove that 2 is prime.", "max_tokens": 40},
    {"said": "Say it again.", "reasoning": {"enabled": False}},
    {"said": "Count to ten.", "model": "moonshotai/kimi-k2-thinking"},
)


@cache
def loopback_replies() -> tuple[RawReply, ...]:
    """A reply of each host to each of `ASKED`, whole and streamed; one in ten is split otherwise than usual."""
    made = []
    with running(noncanonical_rate=0.1) as url, httpx.Client(base_url=url, timeout=60) as api:
        for host, asked, streamed in product(HOSTS, ASKED, (False, True)):
            request = body(host=host.slug, stream=streamed, **asked)
            answer = api.post("/chat/completions", json=request)
            made.append(
                RawReply(f"reply {len(made)}", json.dumps(request).encode(), answer.status_code, answer.content)
            )
    return tuple(made)
