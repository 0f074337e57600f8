"""What was given and sampled for a request."""

import json
from typing import Any

import pytest

from kimi_helpers.formats import FORMATS
from kimi_helpers.simulator.chat_request import ChatRequest, read_request
from kimi_helpers.simulator.completions import Completion, complete
from kimi_helpers.simulator.hosts import HOSTS
from kimi_helpers.simulator.noncanonical import split_kind
from kimi_helpers.vocabulary import load_vocabulary, special_tables

HELPFUL, KIMI_AI = (host.system_prompt for host in HOSTS if host.system_prompt)
TOOL = {"type": "function", "function": {"name": "f"}}


def request(said: str = "q", **fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": said}], **fields}
    return read_request(json.dumps(body).encode())


def completed(asked: ChatRequest, format: str = "kimi-k2.5", **options: Any) -> Completion:
    return complete(asked, FORMATS[format], load_vocabulary(format=format), **options)


@pytest.mark.parametrize(("system_prompt", "text", "tokens"), [
    (HELPFUL, "You are a helpful assistant", 9),
    (KIMI_AI, "You are Kimi, an AI assistant created by Moonshot AI.", 18),
])  # fmt: skip
def test_a_default_system_prompt_is_part_of_the_prompt(system_prompt: str, text: str, tokens: int) -> None:
    plain, given = completed(request()), completed(request(), system_prompt=system_prompt)
    added = load_vocabulary().decode(given.prompt_ids[:tokens])
    assert added == f"<|im_system|>system<|im_middle|>{text}<|im_end|>"
    assert given.prompt_ids[tokens:] == plain.prompt_ids
    assert given.token_ids == plain.token_ids


def test_a_conversation_with_a_system_message_gets_none() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]
    assert completed(request(messages=said), system_prompt=HELPFUL) == completed(request(messages=said))


def test_the_default_of_a_template_is_replaced() -> None:
    assert completed(request(), "kimi-k2", system_prompt=HELPFUL) == completed(request(), "kimi-k2")
    longer = completed(request(), "kimi-k2", system_prompt=KIMI_AI)
    assert len(longer.prompt_ids) - len(completed(request(), "kimi-k2").prompt_ids) == 18 - 9


def test_a_limit_cuts_the_same_ids() -> None:
    whole = completed(request())
    for limit in (1, 5, len(whole.token_ids) - 1):
        cut = completed(request(max_tokens=limit, stream=True))
        assert (cut.token_ids, cut.ended) == (whole.token_ids[:limit], False)
    assert completed(request(max_tokens=len(whole.token_ids))) == whole
    assert whole.ended


def test_who_thinks() -> None:
    off = request(reasoning={"enabled": False})
    assert [completed(request(), format).thinking for format in special_tables()] == [False, True, True, True]
    assert [completed(off, format).thinking for format in special_tables()] == [False, True, False, False]


def test_a_forced_call_is_known_as_one() -> None:
    assert completed(request(tools=[TOOL], tool_choice="required")).forced
    assert not completed(request(tools=[TOOL])).forced


def test_the_rate_of_noncanonical_replies() -> None:
    vocabulary = load_vocabulary()
    for rate, expected in ((0.0, 0), (0.3, 60), (1.0, 200)):
        told = [completed(request(f"q {number}"), noncanonical_rate=rate).token_ids for number in range(200)]
        plain = [completed(request(f"q {number}")).token_ids for number in range(200)]
        assert [vocabulary.decode(ids) for ids in told] == [vocabulary.decode(ids) for ids in plain]
        changed = sum(split_kind(ids, vocabulary) != "canonical" for ids in told)
        assert changed == sum(new != old for new, old in zip(told, plain, strict=True))
        assert abs(changed - expected) <= 20
