"""What a chat-completions request fixes about its reply: thinking, a forced tool call, the most tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kimi_helpers.replies import Reply


@dataclass(frozen=True)
class Asked:
    """What the request fixes about the reply.

    Attributes:
        thinking: whether it left thinking on; None where there is no request.
        earlier_calls: tool calls in its messages: a model may go on counting from there.
        forced_call: whether `tool_choice` forced a tool call.
        limit: the most tokens a reply may have; None where the request does not say.
    """

    thinking: bool | None = None
    earlier_calls: int = 0
    forced_call: bool = False
    limit: int | None = None


def cut_at_limit(reply: Reply, asked: Asked) -> Reply:
    """The reply, marked as cut where it has as many tokens as the request allows.

    Hosts state `tool_calls` or `stop` for some replies that their limit cut.
    """
    billed = reply.usage.completion_tokens if reply.usage else None
    return replace(reply, finish_reason="length") if billed is not None and billed == asked.limit else reply


def read_request(request: Mapping[str, Any] | None) -> Asked:
    """What a chat-completions request fixes; nothing where there is none."""
    if request is None:
        return Asked()
    messages = request.get("messages")
    calls = [
        message.get("tool_calls")
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, Mapping)
    ]
    choice = request.get("tool_choice")
    limits = (request.get("max_completion_tokens"), request.get("max_tokens"))
    return Asked(
        thinking=thinking_asked(request),
        earlier_calls=sum(len(of_message) for of_message in calls if isinstance(of_message, list)),
        forced_call=isinstance(choice, Mapping) or choice == "required",
        limit=next((limit for limit in limits if isinstance(limit, int)), None),
    )


def thinking_asked(request: Mapping[str, Any]) -> bool:
    """Whether a request leaves thinking on, as OpenRouter, Moonshot, vLLM and SGLang name the switch."""
    reasoning, moonshot, template = (
        value if isinstance(value := request.get(name), Mapping) else {}
        for name in ("reasoning", "thinking", "chat_template_kwargs")
    )
    switches = (
        reasoning.get("enabled"),
        template.get("thinking"),
        moonshot.get("type") != "disabled",
        "none" not in (reasoning.get("effort"), request.get("reasoning_effort")),
    )
    return False not in switches
