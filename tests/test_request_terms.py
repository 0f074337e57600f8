from typing import Any

import pytest

from kimi_helpers.request_terms import Asked, read_request, thinking_asked


@pytest.mark.parametrize(
    ("request_body", "asked"),
    [
        ({}, True),
        ({"model": "m", "messages": []}, True),
        ({"reasoning": {"enabled": False}}, False),
        ({"reasoning": {"enabled": True}}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"reasoning": {"max_tokens": 100}}, True),
        ({"reasoning": {}}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "enabled"}}, True),
        ({"chat_template_kwargs": {"thinking": False}}, False),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"chat_template_kwargs": {}}, True),
        ({"reasoning": {"enabled": True}, "chat_template_kwargs": {"thinking": False}}, False),
        # junk says nothing
        ({"reasoning": None, "thinking": None, "chat_template_kwargs": None}, True),
        ({"reasoning": "off", "thinking": "disabled", "chat_template_kwargs": []}, True),
        ({"reasoning": {"enabled": None, "effort": None}}, True),
        ({"reasoning": {"effort": ["none"]}, "reasoning_effort": {"a": 1}}, True),
        ({"thinking": {"type": ["disabled"]}}, True),
    ],
)
def test_whether_thinking_was_asked_for(request_body: dict[str, Any], asked: bool) -> None:
    assert thinking_asked(request_body) is asked
    assert read_request(request_body).thinking is asked


def test_no_request_fixes_nothing() -> None:
    assert read_request(None) == Asked(None, 0, False)
