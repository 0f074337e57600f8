"""Prompts: what a reply is asked for, read from JSONL."""

import codecs
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class PromptFileError(ValueError):
    """A prompt file that cannot be used; the message names the file, the line and what is wrong."""


@dataclass(frozen=True)
class Prompt:
    """A conversation that waits for its next assistant turn.

    Attributes:
        id: unique in its file; by default `default_id` of the rest.
        messages: chat messages as the chat-completions API takes them, in order; the keys of each keep the order
            of the file, because a chat template may write them as they stand.
        tools: function declarations, or None.
        thinking: false asks the model to answer without a think section.
    """

    id: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] | None
    thinking: bool


class _Message(BaseModel):
    """The part of a message that every host needs; further fields pass unchecked."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None


class _Function(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    name: str = Field(min_length=1)


class _Tool(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["function"]
    function: _Function


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str | None = Field(default=None, min_length=1)
    messages: list[_Message] = Field(min_length=1)
    tools: list[_Tool] | None = None
    thinking: bool = True


def read_prompts(path: Path | str) -> list[Prompt]:
    """Read a prompt file: a JSON object a line, with `messages` and where wanted `id`, `tools` and `thinking`.

    Lines end at `\\n` alone: U+2028 and its like may stand in a text. Blank lines are passed over.

    Raises:
        PromptFileError: a line is no such object or repeats an id, or the file holds no prompt.
        OSError: the file cannot be read.
    """
    prompts: list[Prompt] = []
    lines_of: dict[str, int] = {}
    for number, line in enumerate(Path(path).read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            prompt = _prompt(line)
            if prompt.id in lines_of:
                raise ValueError(
                    f"repeats the id {prompt.id!r} of line {lines_of[prompt.id]}; give each prompt its own"
                )
        except RecursionError:
            raise PromptFileError(f"{path}, line {number}: it is nested too deeply; flatten it.") from None
        except ValueError as error:
            raise PromptFileError(f"{path}, line {number}: {error}.") from None
        lines_of[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise PromptFileError(f"{path} holds no prompts: write a JSON object a line, with `messages`.")
    return prompts


def default_id(messages: Any, tools: Any, thinking: bool) -> str:
    """16 hexadecimal digits of the sha256 of the prompt as canonical JSON: the order of keys does not matter.

    Raises:
        ValueError: JSON or UTF-8 cannot write the prompt.
    """
    prompt = {"messages": messages, "tools": tools, "thinking": thinking}
    text = json.dumps(prompt, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _prompt(line: bytes) -> Prompt:
    row = _parse(line)
    try:
        checked = _Row.model_validate(row)
    except ValidationError as error:
        raise ValueError(_first_fault(error)) from None
    if checked.messages[-1].role not in ("user", "tool"):
        # Hosts render an assistant turn at the end as finished, or continue it: the token ids would be a guess.
        raise ValueError("the last message must be of the user or a tool; leave the answer out")
    tools = tuple(row["tools"]) if checked.tools else None
    try:
        own_id = default_id(row["messages"], tools, checked.thinking)
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which UTF-8 cannot write; repair the text") from None
    except ValueError:
        raise ValueError("it holds a number that is not finite, which JSON cannot write; give another") from None
    return Prompt(checked.id or own_id, tuple(row["messages"]), tools, checked.thinking)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); write one object a line") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"]) or "the row"
    return f"{place}: {fault['msg']}"
