"""What gateways do to a tool call after it was parsed: its id replaced, its arguments written anew.

`serving_stack.strip` serves as a rewriting of arguments too: parsers trim them.
"""

import json
from collections.abc import Callable
from typing import Any

from kimi_helpers.simulator.serving_stack import Pieces

IdRule = Callable[[str, str], str]
"""From the sampled id and 64 hexadecimal digits of the call's own to the id that is returned."""


def keep_id(id: str, _digits: str) -> str:
    """The id as it was sampled, `functions.NAME:INDEX`."""
    return id


def bare_id(id: str, _digits: str) -> str:
    """`NAME:INDEX`, as Moonshot's own API returns it."""
    return id.removeprefix("functions.")


def call_id(_id: str, digits: str) -> str:
    """`call_` and 24 characters, in the manner of OpenAI's API, as Together returns it."""
    return f"call_{digits[:24]}"


def hex_id(_id: str, digits: str) -> str:
    """32 hexadecimal digits and nothing else, as SiliconFlow returns it."""
    return digits[:32]


def write_compact(arguments: Pieces) -> Pieces:
    """Arguments parsed and written without blanks; text that is no JSON stays as it is."""
    return _rewritten(arguments, (",", ":"))


def write_spaced(arguments: Pieces) -> Pieces:
    """Arguments parsed and written as Python does by default, `{"a": 1, "b": 2}`; text that is no JSON stays."""
    return _rewritten(arguments, (", ", ": "))


def _rewritten(arguments: Pieces, separators: tuple[str, str]) -> Pieces:
    try:
        parsed: Any = json.loads("".join(arguments))
    except ValueError:
        return arguments
    return (json.dumps(parsed, ensure_ascii=False, separators=separators),)
