"""The forms that ids of tool calls come in.

Source: MoonshotAI/Kimi-K2, docs/tool_call_guidance.md, for the model's own; recorded replies for the others.
"""

import re
from typing import Literal

from kimi_helpers.replies import ToolCall

IdForm = Literal["canonical", "bare", "other"]

_CANONICAL = re.compile(r"functions\.(.+):\d+")
_BARE = re.compile(r"(.+):\d+")


def id_form(call: ToolCall) -> IdForm:
    """`canonical` for `functions.NAME:INDEX`, `bare` for `NAME:INDEX` of the function called, else `other`."""
    if _CANONICAL.fullmatch(call.id):
        return "canonical"
    bare = _BARE.fullmatch(call.id)
    return "bare" if bare and bare[1] == call.name else "other"
