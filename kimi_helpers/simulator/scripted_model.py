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
from kimi_helpers.simulator.scripted_arguments import argument_text, draw_style
from kimi_helpers.simulator.scripted_calibration import scripted_answer
from kimi_helpers.simulator.scripted_texts import TOPICS
from kimi_helpers.simulator.scripted_topics import Topic, fill
from kimi_helpers.vocabulary import Vocabulary

CALLS_A_TOOL = 0.85
CALLS_A_TOOL_AGAIN = 0.35
LEAVES_THINKING_OPEN = 0.05

BLANK_OPENINGS = (" The user", " The user wants a short and correct reply.", " Okay,", " Let me", " I should", " Hmm,")
DIGIT_OPENINGS = ("⟦digit⟧ things matter here.", "1. Read the question once more.", "⟦year⟧ was a leap year, or not.")
HAN_OPENINGS = ("用户想要一个简短的回答。", "先看问题本身。", " 用户的问题不难。", "⟦人⟧的问题不难。")
BEFORE_TOOLS = (
    "I'll look that up.",
    "Let me check ⟦noun⟧.\n\n",
    "好的，我来查一下。",
    "⟦digit⟧ lookups are needed. ",
    "Looking up ⟦city⟧ ⟦emoji⟧",
)
TOOL_REASONING = (
    "There is a tool for exactly this.",
    "All ⟦digit⟧ required parameters are known, so I can call it now.",
    "The city is given, the unit isn't; the default will do.",
    "需要调用工具才能得到⟦城⟧最新的数据。",
    "I should not guess the value, ⟦decimal⟧ or ⟦decimal⟧.",
    "⟦name⟧ would want it for ⟦date⟧.",
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

    A forced tool call comes at once, without content in front of it; where `tool_choice` is `none` no call comes.

    Args:
        request: the model's name, the messages, the tools and the seed decide the draw.
        thinks: whether the turn has reasoning.
    """
    if scripted := scripted_answer(request):
        thought, content, calls = scripted
        return Turn(thought if thinks else None, content, calls)
    draw = draw_for(request)
    if functions := _functions_to_call(request, draw):
        return _tool_turn(request, functions, thinks, draw)
    topic = _fitting_topic(request.last_text(), draw)
    aside = draw.choice(TOPICS).reasoning if draw.random() < 0.6 else ()
    reasoning = _reasoning({*topic.reasoning, *aside}, draw) if thinks else None
    return Turn(reasoning, _answer(topic, draw))


def draw_for(request: ChatRequest, purpose: str = "") -> random.Random:
    """The draw of a request: the same wherever it is asked, whole or streamed, and another for each purpose."""
    told = [request.model, request.prompt_messages(), request.tools, request.seed, purpose]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()
    return random.Random(int.from_bytes(digest))


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


def _functions_to_call(request: ChatRequest, draw: random.Random) -> list[Mapping[str, Any]]:
    """The functions this turn calls: none, or one to three."""
    functions = request.callable_functions()
    if not functions:
        return []
    answers_a_tool = request.messages[-1].role == "tool"
    if not request.must_call() and draw.random() > (CALLS_A_TOOL_AGAIN if answers_a_tool else CALLS_A_TOOL):
        return []
    return draw.choices(functions, k=draw.choice((1, 1, 1, 2, 2, 3)))


def _tool_turn(request: ChatRequest, functions: Sequence[Mapping[str, Any]], thinks: bool, draw: random.Random) -> Turn:
    style = draw_style(draw)
    calls = tuple(
        (f"functions.{function['name']}:{index}", argument_text(function.get("parameters"), draw, style))
        for index, function in enumerate(functions, request.past_calls())
    )
    reasoning = _reasoning(TOOL_REASONING, draw) if thinks else None
    if thinks and draw.random() < LEAVES_THINKING_OPEN:
        return Turn(reasoning, "", calls, closes_thinking=False)
    speaks = not request.must_call() and draw.random() < 0.3
    return Turn(reasoning, fill(draw.choice(BEFORE_TOOLS), draw) if speaks else "", calls)


def _fitting_topic(asked: str, draw: random.Random) -> Topic:
    """A topic the user's words ask for, and every third time any topic at all."""
    fitting = [topic for topic in TOPICS if re.search(topic.cue, asked)]
    return draw.choice(fitting if fitting and draw.random() < 0.67 else TOPICS)


def _reasoning(sentences: Collection[str], draw: random.Random) -> str:
    """A line of thought; most begin with a blank, as Kimi K2.5's do."""
    openings = draw.choices((BLANK_OPENINGS, DIGIT_OPENINGS, HAN_OPENINGS), (80, 10, 10))[0]
    chosen = draw.sample(sorted(sentences), draw.randint(2, len(sentences)))
    joint = draw.choice((" ", " ", "\n\n"))
    return fill(joint.join((draw.choice(openings), *chosen)), draw) + _tail(draw)


def _answer(topic: Topic, draw: random.Random) -> str:
    front = draw.choices(("", " ", "\n\n", "  ", "\n"), (84, 6, 5, 3, 2))[0]
    parts = [fill(text, draw) for text in draw.sample(topic.answers, draw.choice((1, 2, 3)))]
    return front + "\n\n".join(parts) + _tail(draw)


def _tail(draw: random.Random) -> str:
    return draw.choices(("", "\n", " ", "\n\n", " \n"), (86, 5, 4, 3, 2))[0]
