"""A scripted model: for a request it writes a fitting turn and samples it as token ids.

What it writes is drawn from a digest of the request, so the same request gives the same ids at every host, streamed
or not. The ids are canonical: each piece of text is encoded on its own and special tokens are placed by their id.
"""

import hashlib
import json
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kimi_helpers.formats import (
    BEGIN_ARGUMENTS,
    BEGIN_CALL,
    BEGIN_SECTION,
    BEGIN_THINK,
    END_CALL,
    END_SECTION,
    END_THINK,
    END_TURN,
    ModelFormat,
)
from kimi_helpers.simulator.chat_request import ChatRequest
from kimi_helpers.simulator.scripted_arguments import argument_text
from kimi_helpers.simulator.scripted_texts import TOPICS, Topic
from kimi_helpers.vocabulary import Vocabulary

BLANK_OPENINGS = (" The user", " The user wants a short and correct reply.", " Okay,", " Let me", " I should", " Hmm,")
DIGIT_OPENINGS = ("3 things matter here.", "1. Read the question once more.", "2024 was a leap year, if that matters.")
HAN_OPENINGS = ("用户想要一个简短的回答。", "先看问题本身。", " 用户的问题不难。")
BEFORE_TOOLS = ("I'll look that up.", "Let me check.\n\n", "好的，我来查一下。", "2 lookups are needed. ")
TOOL_REASONING = (
    "There is a tool for exactly this.",
    "All required parameters are known, so I can call it now.",
    "The city is given, the unit isn't; the default will do.",
    "需要调用工具才能得到最新的数据。",
    "I should not guess the value.",
)


@dataclass(frozen=True)
class Turn:
    """An assistant turn before it is tokens.

    Attributes:
        reasoning: text of the think section; None where the turn does not think.
        content: text of the answer.
        calls: (id, arguments) of each tool call.
        closes_thinking: false where the tool section begins inside the reasoning, without `</think>`.
    """

    reasoning: str | None
    content: str
    calls: tuple[tuple[str, str], ...] = ()
    closes_thinking: bool = True


def write_turn(request: ChatRequest, thinks: bool) -> Turn:
    """The turn that the model answers a request with; the same request gives the same turn.

    Args:
        request: the model's name, the messages, the tools and the seed decide the draw.
        thinks: whether the turn has reasoning.
    """
    draw = random.Random(_digest(request))
    if functions := _functions_to_call(request, draw):
        return _tool_turn(request, functions, thinks, draw)
    topic = _fitting_topic(request.last_text(), draw)
    aside = draw.choice(TOPICS).reasoning if draw.random() < 0.6 else ()
    reasoning = _reasoning({*topic.reasoning, *aside}, draw) if thinks else None
    return Turn(reasoning, _answer(topic, draw))


def sample(turn: Turn, format: ModelFormat, vocabulary: Vocabulary) -> list[int]:
    """The token ids that a model of this format samples for a turn, the end token included."""

    def special(text: str) -> list[int]:
        return [vocabulary.special_id(text)]

    ids: list[int] = []
    if turn.reasoning is not None:
        if format.opening_think == "model":
            ids += special(BEGIN_THINK)
        ids += vocabulary.encode(turn.reasoning)
        if turn.closes_thinking:
            ids += special(END_THINK)
    ids += vocabulary.encode(turn.content)
    if turn.calls:
        ids += special(BEGIN_SECTION)
        for id, arguments in turn.calls:
            ids += special(BEGIN_CALL) + vocabulary.encode(id)
            ids += special(BEGIN_ARGUMENTS) + vocabulary.encode(arguments) + special(END_CALL)
        ids += special(END_SECTION)
    return ids + special(END_TURN)


def _digest(request: ChatRequest) -> int:
    told = [request.model, request.prompt_messages(), request.tools, request.seed]
    return int.from_bytes(hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest())


def _functions_to_call(request: ChatRequest, draw: random.Random) -> list[Mapping[str, Any]]:
    """The functions this turn calls: none, one or two."""
    functions = request.callable_functions()
    if not functions:
        return []
    answers_a_tool = request.messages[-1].role == "tool"
    if not request.must_call() and draw.random() > (0.2 if answers_a_tool else 0.7):
        return []
    return draw.choices(functions, k=draw.choice((1, 1, 2)))


def _tool_turn(request: ChatRequest, functions: Sequence[Mapping[str, Any]], thinks: bool, draw: random.Random) -> Turn:
    first = request.past_calls()
    calls = tuple(
        (f"functions.{function['name']}:{index}", argument_text(function.get("parameters"), draw))
        for index, function in enumerate(functions, first)
    )
    reasoning = _reasoning(TOOL_REASONING, draw) if thinks else None
    if thinks and draw.random() < 0.05:
        return Turn(reasoning, "", calls, closes_thinking=False)
    content = draw.choice(BEFORE_TOOLS) if draw.random() < 0.3 else ""
    return Turn(reasoning, content, calls)


def _fitting_topic(asked: str, draw: random.Random) -> Topic:
    """A topic the user's words ask for, and every third time any topic at all."""
    fitting = [topic for topic in TOPICS if re.search(topic.cue, asked)]
    return draw.choice(fitting if fitting and draw.random() < 0.67 else TOPICS)


def _reasoning(sentences: Collection[str], draw: random.Random) -> str:
    """A line of thought; most begin with a blank, as Kimi K2.5's do."""
    openings = draw.choices((BLANK_OPENINGS, DIGIT_OPENINGS, HAN_OPENINGS), (80, 10, 10))[0]
    chosen = draw.sample(sorted(sentences), draw.randint(2, len(sentences)))
    joint = draw.choice((" ", " ", "\n\n"))
    return joint.join((draw.choice(openings), *chosen)) + _tail(draw)


def _answer(topic: Topic, draw: random.Random) -> str:
    front = draw.choices(("", " ", "\n\n", "  ", "\n"), (84, 6, 5, 3, 2))[0]
    parts = draw.sample(topic.answers, draw.choice((1, 2, 3)))
    return front + "\n\n".join(parts) + _tail(draw)


def _tail(draw: random.Random) -> str:
    return draw.choices(("", "\n", " ", "\n\n", " \n"), (86, 5, 4, 3, 2))[0]
