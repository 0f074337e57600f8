"""What the scripted model answers to the calibration prompts: all that text can tell of a host.

A real model follows such prompts more or less. This one does what they ask to the letter, and thinks with blanks and
line ends at the edges, so that a host that strips any side loses something there, and one that does not shows it.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from kimi_helpers.simulator.chat_request import ChatRequest
from kimi_helpers.workspace import DATA

Scripted = tuple[str, str, tuple[tuple[str, str], ...]]

CALIBRATION = DATA / "calibration" / "prompts.jsonl"

_PLANETS = "\n\n".join(
    (" Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune", "They have 48 letters together.")
)
_LOOP = """total = 0
for plane in cube:
    for row in plane:
        for cell in row:
            if cell is not None:
                total += cell

"""


def _weather(
    *cities: tuple[str, str, int], spaced: bool = False, around: tuple[str, str] = ("", "")
) -> tuple[tuple[str, str], ...]:
    comma, colon = (", ", ": ") if spaced else (",", ":")
    return tuple(
        (
            f"functions.get_weather:{place}",
            f'{around[0]}{{"city"{colon}"{city}"{comma}"country"{colon}"{country}"{comma}"days"{colon}{days}}}{around[1]}',
        )
        for place, (city, country, days) in enumerate(cities)
    )


def _times(number: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"functions.get_time:{place}", "{}") for place in range(number))


def _event(text: str) -> tuple[tuple[str, str], ...]:
    return (("functions.create_event:0", text),)


# Prompt -> what is thought (left out where the request switches thinking off), answered and called.
_ANSWERS: Mapping[str, Scripted] = {
    "number-alone": (" 127 * 43 = 5461.", "5461", ()),
    "number-thinking-off": ("", "45", ()),
    "han-word": (" 用户问的是冰。", "冰", ()),
    "han-digits": (" 365天，闰年366天。", "365天", ()),
    "system-message": (" 7 has no divisors but 1 and 7.", "Yes", ()),
    "spelled-token": (" It ends a sequence.", "End", ()),
    "echo-lines": (" The lines around it are empty.\n", "\n\n42 apples\n\n", ()),
    "echo-blanks": (" Two blanks come first.\n\n", "  7 days \n", ()),
    "echo-han": ("\n\n 用户要我原样重复\n\n\n", "\n\n 三个苹果\n\n\n", ()),
    "echo-digits": ("\n\n 365 is a number\n\n\n", "\n\n 365 days\n\n\n", ()),
    "echo-four": ("\n\n 4 comes first\n\n\n", "\n\n 4 and 44\n\n\n", ()),
    "echo-thinking-off": ("", "\n\n 12 eggs\n\n\n", ()),
    "echo-thinking-off-han": ("", "\n\n 两本书\n\n\n", ()),
    "echo-thinking-off-digits": ("", "\n\n 9 and 99\n\n\n", ()),
    "code-indented": (" Three loops, one inside the other.", _LOOP, ()),
    "cut-reasoning": (_PLANETS, "48", ()),
    "cut-content": ("", "\n\n".join(map(str, range(1, 41))), ()),
    "call-spaced": (" The weather tool knows.", "", _weather(("Oslo", "Norway", 3), spaced=True)),
    "call-compact": (" The weather tool knows.", "", _weather(("Rome", "Italy", 1))),
    "calls-apart-1": (
        " 3 calls are needed.",
        "",
        _weather(("Paris", "France", 2), ("Berlin", "Germany", 2), ("Madrid", "Spain", 2), around=("\n\n ", " \n")),
    ),
    "calls-apart-2": (
        " 3 calls again.",
        "",
        _weather(("Lima", "Peru", 2), ("Quito", "Ecuador", 2), ("Bogota", "Colombia", 2), around=("\n\n ", " \n")),
    ),
    "call-nested-spaced": (
        " All is known.",
        "",
        _event(
            '{"title": "Review", "people": ["Ada", "Bob", "Cy"], "place": {"room": 4, "floor": 2, "remote": false},'
            ' "days": [1, 2, 3]}'
        ),
    ),
    "call-nested-spaced-han": (
        " 都知道了。",
        "",
        _event(
            '{"title": "评审", "people": ["小王", "小李", "小陈"], "place": {"room": 4, "floor": 2, "remote": false},'
            ' "days": [1, 2, 3]}'
        ),
    ),
    "call-nested-compact": (
        " All is known.",
        "",
        _event('{"title":"Lunch","people":["Dan","Eve"],"place":{"room":1,"floor":9,"remote":false},"days":[4,5]}'),
    ),
    "call-nested-compact-two": (
        " All is known.",
        "",
        _event('{"title":"Standup","people":["Fay","Gus"],"place":{"room":3,"floor":3,"remote":true},"days":[1,2]}'),
    ),
    "call-named-oddly": (" That is a lookup.", "", (("functions.look-up.city_v2:0", '{"name": "Kyoto"}'),)),
    "call-after-words": (" First a sentence.", "I will look\n\n\n", _times(1)),
    "call-after-digits": (" First the words.", "2 lookups\n\n\n", _times(2)),
    "call-after-han": (" 先说话。", "我来看看\n\n\n", _times(1)),
    "call-thinking-off": ("", "", _weather(("Turin", "Italy", 5), spaced=True)),
    "call-forced-7": ("", "", (("functions.store_number:0", '{"value": 777}'),)),
    "call-forced-8": ("", "", (("functions.store_number:0", '{"value": 888}'),)),
    "call-forced-9": ("", "", (("functions.store_number:0", '{"value": 999}'),)),
    "second-turn": (" The tool says 12.", "12 degrees.", ()),
    "third-turn": (" 17 follows 13.", "17", ()),
}


def scripted_answer(request: ChatRequest) -> Scripted | None:
    """What is thought, answered and called where a request is one of the calibration prompts; None elsewhere.

    Nor is a prompt answered so whose `tool_choice` the answer would not heed.
    """
    answer = _ANSWERS.get(_prompt_ids().get(_conversation(message.model_dump() for message in request.messages), ""))
    if answer is None:
        return None
    calls = answer[2]
    heeds = bool(request.callable_functions()) if calls else not request.must_call()
    return answer if heeds else None


@cache
def _prompt_ids() -> Mapping[str, str]:
    """Conversation -> id of the calibration prompt."""
    rows = [json.loads(line) for line in CALIBRATION.read_bytes().splitlines()]
    return {_conversation(row["messages"]): row["id"] for row in rows}


def _conversation(messages: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps([(message["role"], message["content"]) for message in messages])
