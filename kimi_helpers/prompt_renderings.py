"""The prompts that hosts may have made of a request: the template's own rendering, and known deviations from it.

A deviation is listed only where a recorded reply of a Kimi host (October 2025 to October 2026) bears it out:

* a known default system message added or left out (`data/default_system_prompts.toml`);
* tools as compact JSON (Moonshot on K2; K2.5's template rendered without its tokenizer class, so at Avian), tools
  without `strict` (Groq), or with the fields of a typed request class alone, in its order (Avian);
* the arguments of past calls parsed and written anew (SGLang does, with blanks; gateways write none);
* the reasoning of past turns left out (Chutes behind OpenRouter);
* special tokens spelled in messages read as such (the official tokenizer class).
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any, Literal

from kimi_helpers.formats import (
    END_TURN,
    MIDDLE,
    SYSTEM_HEADER,
    Message,
    ModelFormat,
    PromptError,
    Segment,
    Special,
    Tool,
    as_text,
    encode_segments,
)
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary
from kimi_helpers.workspace import DATA

Ids = tuple[int, ...]

_TYPED_FIELDS = ("name", "description", "parameters")
_SEPARATORS = {"without blanks": (",", ":"), "with blanks": (", ", ": ")}


@dataclass(frozen=True)
class _Request:
    """What a prompt is made of; reasoning stands in `reasoning_content`."""

    messages: list[Message]
    tools: list[Tool]
    thinking: bool
    preserves_thinking: bool


@dataclass(frozen=True)
class _Handling:
    """What a host makes of a request; the defaults are the template's own way."""

    default_system: str | None
    tool_fields: Literal["as sent", "without strict", "typed"] = "as sent"
    compact_tools: bool = False
    argument_separators: tuple[str, str] | None = None
    keeps_reasoning: bool = True
    recognises_specials: bool = False


@dataclass(frozen=True)
class _Deviation:
    """One field of `_Handling` set otherwise."""

    name: str
    field: str
    value: Any


def renderings(
    request: Mapping[str, Any], vocabulary: Vocabulary, format: ModelFormat, thinking: bool = True, most: int = 2
) -> dict[Ids, tuple[str, ...]]:
    """The distinct renderings of a request with at most `most` deviations, the plain one first.

    Args:
        request: the body of a chat-completions request.
        thinking: whether it leaves thinking on.

    Returns:
        The ids of each, and the fewest deviations that give them.

    Raises:
        PromptError: the request cannot be rendered, or holds an image, whose tokens a rendering does not expand.
    """
    found: dict[Ids, tuple[str, ...]] = {}
    for names, ids in _each_rendering(request, vocabulary, format, thinking, most):
        found.setdefault(ids, names)
    return found


def rendering_lengths(
    request: Mapping[str, Any], vocabulary: Vocabulary, format: ModelFormat, thinking: bool = True, most: int = 2
) -> dict[frozenset[str], int]:
    """The names of every combination of at most `most` deviations that a request leaves room for -> tokens.

    Unlike in `renderings`, none is left out where it changes nothing.

    Raises:
        PromptError: as `renderings`.
    """
    each = _each_rendering(request, vocabulary, format, thinking, most)
    return {frozenset(names): len(ids) for names, ids in each}


def _each_rendering(
    request: Mapping[str, Any], vocabulary: Vocabulary, format: ModelFormat, thinking: bool, most: int
) -> Iterator[tuple[tuple[str, ...], Ids]]:
    """Every combination of deviations, fewest first, with its ids."""
    read = _read(request, format, thinking)
    plain = _Handling(format.default_system)
    deviations = list(_deviations(read, vocabulary))
    for number in range(most + 1):
        for chosen in combinations(deviations, number):
            if len({deviation.field for deviation in chosen}) == number:
                handling = replace(plain, **{deviation.field: deviation.value for deviation in chosen})
                names = tuple(deviation.name for deviation in chosen)
                yield names, _render(read, handling, vocabulary, format)


@cache
def default_system_prompts() -> tuple[str, ...]:
    """The texts that hosts are known to add where a conversation has no system message."""
    rows = tomllib.loads((DATA / "default_system_prompts.toml").read_text("utf-8"))["prompt"]
    return tuple(row["text"] for row in rows)


def _read(request: Mapping[str, Any], format: ModelFormat, thinking: bool) -> _Request:
    messages, tools = request.get("messages"), request.get("tools") or []
    if not _is_list_of_objects(messages) or not messages:
        raise PromptError("messages is no list of objects, or empty; write it as the chat API does.")
    if not _is_list_of_objects(tools):
        raise PromptError("tools is no list of objects; write it as the chat API does.")
    for place, message in enumerate(messages):
        parts = content if isinstance(content := message.get("content"), list) else []
        if any(_object(part).get("type") in ("image", "image_url") for part in parts):
            raise PromptError(f"message {place} holds an image, whose tokens are not known; leave such requests out.")
    template, moonshot = (_object(request.get(name)) for name in ("chat_template_kwargs", "thinking"))
    preserves = template.get("preserve_thinking") is True or moonshot.get("keep") == "all"
    messages = [_with_reasoning(message) for message in messages]
    return _Request(messages, tools, thinking, preserves and format.preserves_thinking)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _with_reasoning(message: Message) -> Message:
    """A message with its reasoning where templates look for it, whichever field carries it."""
    if message.get("reasoning_content"):
        return message
    details = message.get("reasoning_details")
    texts = [_object(detail).get("text") for detail in details] if isinstance(details, list) else []
    text = message.get("reasoning") or "".join(text for text in texts if isinstance(text, str))
    return {**message, "reasoning_content": text} if text else message


def _deviations(request: _Request, vocabulary: Vocabulary) -> Iterator[_Deviation]:
    """The deviations that a request leaves room for; some may change nothing."""
    past = [message for message in request.messages if message.get("role") == "assistant"]
    if request.messages[0].get("role") != "system":  # the templates' own condition
        yield _Deviation("no default system prompt", "default_system", None)
        for text in default_system_prompts():
            yield _Deviation(f"the default system prompt {text!r}", "default_system", text)
    if request.tools:
        yield _Deviation("tools without strict", "tool_fields", "without strict")
        yield _Deviation("tools with the fields of a typed request alone", "tool_fields", "typed")
        yield _Deviation("tools as compact JSON", "compact_tools", True)
    if any(message.get("tool_calls") for message in past):
        for how, separators in _SEPARATORS.items():
            yield _Deviation(f"past arguments written {how}", "argument_separators", separators)
    if any(message.get("reasoning_content") for message in past):
        yield _Deviation("past reasoning left out", "keeps_reasoning", False)
    if vocabulary.spelling.search(json.dumps([request.messages, request.tools], ensure_ascii=False)):
        yield _Deviation("special tokens in text recognised", "recognises_specials", True)


def _render(request: _Request, handling: _Handling, vocabulary: Vocabulary, format: ModelFormat) -> Ids:
    messages = [_message(message, handling) for message in request.messages]
    tools = [_tool(tool, handling.tool_fields) for tool in request.tools]
    declared = [] if handling.compact_tools else tools
    layout = replace(format, default_system=handling.default_system)
    segments = layout.prompt_segments(messages, declared, request.thinking, request.preserves_thinking)
    if handling.compact_tools:
        segments = [*_compact_declaration(tools), *segments]
    if handling.recognises_specials:
        return tuple(vocabulary.encode(as_text(segments), specials=True))
    try:
        return tuple(encode_segments(vocabulary, segments))
    except UnknownSpecialToken as error:
        raise PromptError(f"{error.args[0]}; load the table of {format.name}.") from None


def _compact_declaration(tools: Sequence[Tool]) -> list[Segment]:
    text = json.dumps(tools, ensure_ascii=False, separators=_SEPARATORS["without blanks"])
    return [Special(SYSTEM_HEADER), "tool_declare", Special(MIDDLE), text, Special(END_TURN)]


def _tool(tool: Tool, fields: str) -> Tool:
    function = tool.get("function")
    if fields == "as sent" or not isinstance(function, Mapping):
        return tool
    if fields == "without strict":
        return {**tool, "function": {name: value for name, value in function.items() if name != "strict"}}
    typed = {name: function[name] for name in _TYPED_FIELDS if name in function}
    return {"type": tool.get("type", "function"), "function": typed}


def _message(message: Message, handling: _Handling) -> Message:
    changed = dict(message)
    if not handling.keeps_reasoning:
        changed.pop("reasoning_content", None)
    if handling.argument_separators and isinstance(calls := message.get("tool_calls"), list):
        changed["tool_calls"] = [_rewritten(call, handling.argument_separators) for call in calls]
    return changed


def _rewritten(call: Any, separators: tuple[str, str]) -> Any:
    """A call with its arguments parsed and written anew; as it is where they are no JSON."""
    try:
        arguments = call["function"]["arguments"]
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        text = json.dumps(value, ensure_ascii=False, separators=separators)
    except (ValueError, TypeError, KeyError, RecursionError):
        return call
    return {**call, "function": {**call["function"], "arguments": text}}
