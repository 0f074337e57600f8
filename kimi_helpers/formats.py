"""How each model lays out a prompt and a completion in tokens: those of Kimi, and ChatML for small models to try.

A rendering is a list of segments: ordinary text, and special tokens named by their spelling. Special tokens
are placed by id, so text of a message can never become a control token unless asked for.

Sources: the chat templates of MoonshotAI's K2 (July 2025), K2-Thinking, K2.5, and K2.6 as documented; the
completion law as the hosts' billed counts bear it out. Media placeholders are written, not expanded.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from kimi_helpers.tool_declarations import json_declarations, typescript_declarations
from kimi_helpers.vocabulary import UnknownSpecialToken, Vocabulary, chunk_borders, pieces

BEGIN_THINK = "<think>"
END_THINK = "</think>"
END_TURN = "<|im_end|>"
BEGIN_SECTION = "<|tool_calls_section_begin|>"
END_SECTION = "<|tool_calls_section_end|>"
BEGIN_CALL = "<|tool_call_begin|>"
BEGIN_ARGUMENTS = "<|tool_call_argument_begin|>"
END_CALL = "<|tool_call_end|>"
MIDDLE = "<|im_middle|>"
CHATML_START = "<|im_start|>"
HEADERS = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}
SYSTEM_HEADER = "<|im_system|>"

Message = Mapping[str, Any]
Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Special:
    """A special token in a rendering, by its spelling."""

    text: str


Segment = str | Special


class PromptError(ValueError):
    """A conversation that a chat template cannot render; the message names the message and what is wrong."""


@dataclass(frozen=True)
class ModelFormat:
    """The layout of one model's prompts and completions.

    Attributes:
        name: `kimi-k2`, `kimi-k2-thinking`, `kimi-k2.5`, `kimi-k2.6` or `chatml`.
        slug: a pattern of the model's names, without the author.
        default_system: the system message that the template adds where the conversation has none.
        tools: how tools are declared: as JSON, or as TypeScript.
        opening_think: who writes `<think>`: nobody (the model does not think), the model (then it is sampled,
            counted and supervised), or the prompt (then it is neither).
        preserves_thinking: whether the template can keep the reasoning of all past turns on request.
        turns: how a turn is laid out: with Kimi's headers, or as ChatML (SmolLM2).
    """

    name: str
    slug: str
    default_system: str | None
    tools: Literal["json", "typescript", "none"]
    opening_think: Literal["nobody", "model", "prompt"]
    preserves_thinking: bool = False
    turns: Literal["kimi", "chatml"] = "kimi"

    @property
    def thinks(self) -> bool:
        """Whether the model thinks at all."""
        return self.opening_think != "nobody"

    def prompt_segments(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        thinking: bool = True,
        preserve_thinking: bool = False,
        add_generation_prompt: bool = True,
    ) -> list[Segment]:
        """The prompt of a conversation as segments.

        Args:
            messages: chat messages: `role`, `content` (text, parts or null), and where they apply `name`,
                `reasoning_content`, `tool_calls`, `tool_call_id`.
            tools: function declarations as the chat-completions API takes them.
            thinking: false opens and closes the think section in the prompt (K2.5, K2.6).
            preserve_thinking: keep the reasoning of past turns too (K2.6).
            add_generation_prompt: end in the assistant's header, ready for its reply.

        Raises:
            PromptError: a message the template cannot render.
        """
        if preserve_thinking and not self.preserves_thinking:
            raise PromptError(f"{self.name} cannot preserve the thinking of past turns; leave preserve_thinking off.")
        if odd := [place for place, message in enumerate(messages) if not isinstance(message, Mapping)]:
            raise PromptError(f"message {odd[0]} is not an object; write it as the chat API does.")
        segments = self._declare(tools) if tools else []
        if self.default_system and (not messages or messages[0].get("role") != "system"):
            segments += self._message({"role": "system", "content": self.default_system}, False)
        keep_from = 0 if preserve_thinking else _after_last_answer(messages)
        for place, message in enumerate(messages):
            try:
                segments += self._message(message, thinking and place >= keep_from)
            except KeyError as error:
                raise PromptError(f"message {place} lacks {error.args[0]!r}; write it as the chat API does.") from None
            except (TypeError, ValueError, AttributeError) as error:
                raise PromptError(f"message {place}: {error}; write it as the chat API does.") from None
        if add_generation_prompt and self.turns == "chatml":
            segments += [Special(CHATML_START), "assistant\n"]
        elif add_generation_prompt:
            segments += [Special(HEADERS["assistant"]), "assistant", Special(MIDDLE)]
            if self.opening_think == "prompt":
                segments += [Special(BEGIN_THINK)] if thinking else [Special(BEGIN_THINK), Special(END_THINK)]
        return segments

    def prompt_ids(
        self,
        vocabulary: Vocabulary,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        thinking: bool = True,
        preserve_thinking: bool = False,
        add_generation_prompt: bool = True,
        recognise_specials: bool = False,
    ) -> list[int]:
        """The prompt of a conversation as token ids; arguments as `prompt_segments`.

        Args:
            vocabulary: whose ids.
            recognise_specials: encode the rendered text whole, so that a special token spelled in a message
                becomes that token. The official class does so, and so do hosts that use it.

        Raises:
            PromptError: a message the template cannot render, or a special token the vocabulary lacks.
        """
        segments = self.prompt_segments(messages, tools, thinking, preserve_thinking, add_generation_prompt)
        if recognise_specials:
            return vocabulary.encode(as_text(segments), specials=True)
        try:
            return encode_segments(vocabulary, segments)
        except UnknownSpecialToken as error:
            raise PromptError(f"{error.args[0]}; load the table of {self.name}.") from error

    def completion_segments(
        self,
        reasoning: list[Segment],
        content: list[Segment],
        calls: Sequence[tuple[str, list[Segment]]] = (),
        thinking: bool = True,
        closes_thinking: bool = True,
        ends: bool = True,
    ) -> list[Segment]:
        """What the model samples, from its parts: the token law of the format.

        Args:
            reasoning: the think section.
            content: the answer.
            calls: (id, arguments) of each tool call.
            thinking: false where the prompt switched thinking off: then no think token is sampled.
            closes_thinking: false where the reply was cut inside its reasoning, or a tool section began there.
            ends: false where the reply was cut by its length, before the end-of-turn token.
        """
        segments: list[Segment] = []
        if self.thinks and thinking:
            segments += [Special(BEGIN_THINK)] if self.opening_think == "model" else []
            segments += [*reasoning, Special(END_THINK)] if closes_thinking else reasoning
        segments += content
        segments += tool_section(calls) if calls else []
        return [*segments, Special(END_TURN)] if ends else segments

    def _declare(self, tools: Sequence[Tool]) -> list[Segment]:
        if self.tools == "none":
            raise PromptError(f"{self.name} has no layout for tools; leave them out.")
        if self.tools == "typescript":
            # the template tests the text for truth: with no function to declare it falls back to JSON
            text = typescript_declarations(tools) or json_declarations(tools)
        else:
            text = json.dumps(list(tools), ensure_ascii=False)
        return [Special(SYSTEM_HEADER), "tool_declare", Special(MIDDLE), text, Special(END_TURN)]

    def _message(self, message: Message, keep_reasoning: bool) -> list[Segment]:
        role = _text(message, "role")
        if self.turns == "chatml":
            if message.get("tool_calls"):
                raise TypeError("ChatML has no layout for tool calls")
            return [Special(CHATML_START), f"{role}\n", *_content(message.get("content")), Special(END_TURN), "\n"]
        header = Special(HEADERS.get(role, SYSTEM_HEADER))
        segments: list[Segment] = [header, _text(message, "name") if message.get("name") else role, Special(MIDDLE)]
        if role == "assistant" and self.thinks:
            kept = keep_reasoning and message.get("reasoning_content")
            segments += [Special(BEGIN_THINK), _text(message, "reasoning_content") if kept else "", Special(END_THINK)]
        if role == "tool":
            segments.append(f"## Return of {_text(message, 'tool_call_id') if message.get('tool_call_id') else ''}\n")
        segments += _content(message.get("content"))
        if role == "assistant" and (calls := message.get("tool_calls")):
            segments += tool_section((_text(call, "id"), [_arguments(call["function"])]) for call in calls)
        return [*segments, Special(END_TURN)]


def _after_last_answer(messages: Sequence[Message]) -> int:
    """Index behind the last assistant message without tool calls: reasoning up to there is emptied."""
    answers = [
        place
        for place, message in enumerate(messages)
        if message.get("role") == "assistant" and not message.get("tool_calls")
    ]
    return answers[-1] + 1 if answers else 0


def _content(content: Any) -> list[Segment]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    segments: list[Segment] = []
    for part in content:
        if part["type"] in ("image", "image_url"):
            segments += [
                Special("<|media_begin|>"),
                "image",
                Special("<|media_content|>"),
                Special("<|media_pad|>"),
            ]
            segments += [Special("<|media_end|>"), "\n"]
        elif part["type"] == "text":
            segments.append(_text(part, "text"))
        else:
            raise TypeError(f"a part of type {part['type']!r} cannot be rendered (text and image can)")
    return segments


def _arguments(function: Mapping[str, Any]) -> str:
    arguments = function["arguments"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type(value).__name__}, not text")
    return value


def tool_section(calls: Iterable[tuple[str, list[Segment]]]) -> list[Segment]:
    """The tool section of an assistant turn, from (id, arguments) pairs."""
    segments: list[Segment] = [Special(BEGIN_SECTION)]
    for id, arguments in calls:
        segments += [Special(BEGIN_CALL), id, Special(BEGIN_ARGUMENTS), *arguments, Special(END_CALL)]
    return [*segments, Special(END_SECTION)]


def as_text(segments: Iterable[Segment]) -> str:
    """The rendering as text, special tokens spelled."""
    return "".join(segment if isinstance(segment, str) else segment.text for segment in segments)


def encode_segments(vocabulary: Vocabulary, segments: Sequence[Segment]) -> list[int]:
    """Token ids of a rendering: special tokens by id, the text between two of them encoded as one piece.

    Long text is cut where the official class cuts the whole rendering, so that the ids agree with it; only a
    special token that lies across a cut, which the official class breaks into text, stays whole.

    Raises:
        UnknownSpecialToken: the vocabulary names no such special token.
    """
    borders = chunk_borders(as_text(segments))
    ids: list[int] = []
    start = 0
    for is_text, group in groupby(segments, key=lambda segment: isinstance(segment, str)):
        run = list(group)
        text = as_text(run)
        if is_text:
            cuts = [border - start for border in borders if start < border < start + len(text)]
            ids += (id for piece in pieces(text, cuts) for id in vocabulary.encode_unchunked(piece))
        else:
            ids += (vocabulary.special_id(segment.text) for segment in run if isinstance(segment, Special))
        start += len(text)
    return ids


FORMATS = {
    format.name: format
    for format in (
        ModelFormat(
            "kimi-k2",
            r"kimi-k2(-instruct)?(-\d{4})?(-turbo)?(-preview)?",
            "You are a helpful assistant",
            "json",
            "nobody",
        ),
        ModelFormat(
            "kimi-k2-thinking",
            r"kimi-k2-thinking(-turbo)?(-\d{8})?",
            "You are Kimi, an AI assistant created by Moonshot AI.",
            "json",
            "model",
        ),
        ModelFormat("kimi-k2.5", r"kimi-k2\.5(-\d{4}|-\d{8})?", None, "typescript", "prompt"),
        ModelFormat("kimi-k2.6", r"kimi-k2\.6(-\d{4}|-\d{8})?", None, "typescript", "prompt", preserves_thinking=True),
        ModelFormat(
            "chatml",
            r"smollm2-.*",
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
            "none",
            "nobody",
            turns="chatml",
        ),
    )
}


def format_of_model(model: str) -> ModelFormat | None:
    """The format of a model by its slug (`moonshotai/kimi-k2.5-0127`), or None: then nothing is guessed."""
    name = model.rpartition("/")[2].partition(":")[0].lower()
    return next((format for format in FORMATS.values() if re.fullmatch(format.slug, name)), None)
