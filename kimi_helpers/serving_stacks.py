"""What stands between a model and the text of its replies, one hypothesis at a time, and each step run backwards.

A `ServingStack` names the steps of one host: detokeniser, reasoning parser, tool parser, serialiser, counter. Steps
that lose information have several sources for one text: a source is what the step before can have had. Edits that
no stack makes are not tried, because a search over many edits finds counts that fit by chance.

Sources of the steps: vllm-project/vllm#33457 and #50166 (blanks beside added tokens), sgl-project/sglang#24251
(stripping), and the replies recorded by the authors of public repositories.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from kimi_helpers.workspace import DATA

Side = Literal["text start", "text end", "reasoning start", "reasoning end", "content start", "content end"]
REGISTRY = DATA / "serving_stacks.toml"

# How many sources of one text are listed: for arguments of 200 separators, one blank more or less in each place.
MOST_SOURCES = 400

# What a strip can have taken. Longer runs cost at least as many tokens as one of these and stand for none of fewer.
LOST_AT_START = ("", " ", "\n", "\n\n", "  ", "\n ", "\n\n ", "\t")
LOST_AT_END = ("", "\n", "\n\n", " ", "\n\n\n", "  ", " \n", "\r\n")


class StackError(ValueError):
    """A file of serving stacks that cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True)
class ServingStack:
    """One hypothesis of what a host does to text and count.

    Attributes:
        name: for people and profile files.
        seen: where replies showed it: hosts, n and dates.
        blanks: the detokeniser puts one blank on each side of every added token it decodes (transformers' slow
            decode with `spaces_between_special_tokens`).
        parses_reasoning: the think section is cut out at `</think>`; else it stands in the content.
        strips_json: sides from which the parser strips blanks in replies that are not streamed: of the whole decoded
            text, of the reasoning, of the content.
        strips_stream: the same in streamed replies.
        strips_thinking_only: it is the reasoning parser that strips, so replies with thinking switched off keep theirs.
        cuts_at_call: the tool parser cuts the content at the first call instead of at the section, so that a blank
            added between the two stays in the content.
        arguments: `sampled`, or parsed and dumped again as `compact` or `spaced` JSON.
        trims_arguments: the tool parser takes blanks away around the arguments.
        ids: `sampled`; `bare`, without the leading `functions.`; or `replaced` by ids of the gateway's own.
        counts_end: `completion_tokens` includes the end-of-turn token.
        counts_forced: it includes the start of a tool call that the request forced.
        counts_reasoning: `reasoning_tokens` was seen to be the tokens up to and with `</think>`; then it is a second
            equation.
        drops_open_calls: the tool parser returns a call only behind its `<|tool_call_end|>`, as vLLM's does.
        shows_half_characters: what is left of a character that the length limit cut is shown as U+FFFD, never dropped,
            so that a reply without one ends in a whole character.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    seen: str
    blanks: bool = False
    parses_reasoning: bool = True
    strips_json: frozenset[Side] = frozenset()
    strips_stream: frozenset[Side] = frozenset()
    strips_thinking_only: bool = False
    cuts_at_call: bool = False
    arguments: Literal["sampled", "compact", "spaced"] = "sampled"
    trims_arguments: bool = False
    ids: Literal["sampled", "bare", "replaced"] = "sampled"
    counts_end: bool = True
    counts_forced: bool = True
    counts_reasoning: bool = False
    drops_open_calls: bool = False
    shows_half_characters: bool = False

    def strips(self, transport: str, thinking: bool | None = None) -> frozenset[Side]:
        """The sides that are stripped in a reply of this transport; `thinking` is false where it was switched off."""
        if self.strips_thinking_only and thinking is False:
            return frozenset()
        return self.strips_stream if transport == "sse" else self.strips_json


def read_stacks(path: Path) -> Mapping[str, ServingStack]:
    """Serving stacks by name, from a TOML file of `[[stack]]` tables.

    Raises:
        StackError: no such file, not TOML, a field missing, unknown or of the wrong type, a name twice.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        stacks = TypeAdapter(dict[Literal["stack"], list[ServingStack]]).validate_python(document).get("stack", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StackError(f"{path} cannot be read as a TOML file of serving stacks: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise StackError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    by_name = {stack.name: stack for stack in stacks}
    if len(by_name) < len(stacks):
        raise StackError(f"{path}: two stacks have the same name; rename one.")
    return by_name


@cache
def known_stacks() -> Mapping[str, ServingStack]:
    """The registry of the workspace, `data/serving_stacks.toml`, simplest first."""
    return read_stacks(REGISTRY)


@dataclass(frozen=True)
class Surroundings:
    """What stands around a piece of text in the decoded output.

    Attributes:
        after_token, before_token: whether a decoded added token touches it on that side.
        stripped_start, stripped_end: whether the parser strips it there.
        before_section: whether it is the content before a tool section.
        begins_blank: whether the model's habit is to begin it with a blank, as K2.5 begins its reasoning.
    """

    after_token: bool
    before_token: bool
    stripped_start: bool = False
    stripped_end: bool = False
    before_section: bool = False
    begins_blank: bool = False


@dataclass(frozen=True)
class Sources:
    """What a step can have been given where a text came out of it.

    Attributes:
        texts: distinct, plainest first; none where the step cannot have made the text.
        complete: whether these are all; where they are not, no count proves one of them.
    """

    texts: tuple[str, ...]
    complete: bool = True


def _listed(texts: Iterable[str], most: int) -> Sources:
    """The first `most` distinct texts."""
    found: dict[str, None] = {}
    for text in texts:
        if len(found) == most and text not in found:
            return Sources(tuple(found), complete=False)
        found[text] = None
    return Sources(tuple(found))


def text_sources(text: str, stack: ServingStack, around: Surroundings, most: int = MOST_SOURCES) -> Sources:
    """What the model can have written where a host returned `text`; at most `most` texts.

    None where the stack cannot have returned it: a stripped side ends in a blank, or an artefact blank is missing.
    """
    if (around.stripped_start and text[:1].isspace()) or (around.stripped_end and text[-1:].isspace()):
        return Sources(())
    if stack.blanks:
        # where a strip reached the blank between section and call, it is gone
        reached = around.stripped_end or (around.stripped_start and not text)
        if stack.cuts_at_call and around.before_section and not reached:
            if not text.endswith(" "):
                return Sources(())
            text = text[:-1]
        undone = _without_artefacts(text, around)
        if undone is None:
            return Sources(())
        text = undone
    if not (around.stripped_start or around.stripped_end):
        return Sources((text,))
    starts: tuple[str, ...] = LOST_AT_START if around.stripped_start else ("",)
    if around.stripped_start and around.begins_blank:
        starts = (" ", *(start for start in starts if start != " "))
    ends = LOST_AT_END if around.stripped_end else ("",)
    return _listed((start + text + end for start in starts for end in ends), most)


def _without_artefacts(text: str, around: Surroundings) -> str | None:
    """The text less the blanks of added tokens beside it; None where one is missing."""
    at_start = around.after_token and not around.stripped_start
    at_end = around.before_token and not around.stripped_end
    if text == (" " if at_start and at_end else ""):
        return ""  # no text has no blanks of its own; two added tokens in a row share a single one
    if (at_start and not text.startswith(" ")) or (at_end and not text.endswith(" ")):
        return None
    if at_start and at_end and len(text) < 3:
        return None
    return text[1 if at_start else 0 : len(text) - 1 if at_end else len(text)]


def argument_sources(text: str, stack: ServingStack, around: Surroundings, most: int = MOST_SOURCES) -> Sources:
    """What the model can have written where a host returned these arguments of a tool call; at most `most` texts."""
    if stack.trims_arguments and text != text.strip():
        return Sources(())
    if stack.arguments != "sampled":
        try:
            value = json.loads(text)
            dumped = dump(value, stack.arguments)
            return _listed(_dump_sources(value), most) if text == dumped else Sources(())
        except (ValueError, RecursionError):
            pass  # what cannot be parsed is not dumped again
    return text_sources(text, stack, around, most)


def _dump_sources(value: Any) -> Iterator[str]:
    """Sources of re-dumped JSON: the styles that models write throughout, then one blank more or less.

    The latter are there to find out whether a single blank leaves the count as it is: then the count cannot tell, and
    nothing is proven.
    """
    compact = dump(value, "compact")
    places = _separators(compact)
    everywhere = set(places)
    yield compact
    yield _with_blanks(compact, everywhere)
    yield _with_blanks(compact, {place for place in places if compact[place - 1] == ","})
    yield json.dumps(value, ensure_ascii=False, indent=2)
    for place in places:
        yield _with_blanks(compact, {place})
        yield _with_blanks(compact, everywhere - {place})


def dump(value: Any, style: Literal["compact", "spaced"]) -> str:
    """JSON as gateways write it: non-ASCII kept, separators without or with a blank."""
    separators = (",", ":") if style == "compact" else (", ", ": ")
    return json.dumps(value, ensure_ascii=False, separators=separators)


_STRING_OR_SEPARATOR = re.compile(r'"(?:[^"\\]++|\\.)*+"|[,:]')


def _separators(compact: str) -> list[int]:
    """Offsets behind each `,` and `:` outside strings."""
    return [match.end() for match in _STRING_OR_SEPARATOR.finditer(compact) if match.group() in ",:"]


def _with_blanks(compact: str, places: set[int]) -> str:
    cuts = [0, *sorted(places), len(compact)]
    return " ".join(compact[start:end] for start, end in pairwise(cuts))


_CANONICAL_ID = re.compile(r"functions\.(.+):\d+")
_BARE_ID = re.compile(r"(?!functions\.).+:\d+")


def id_sources(id: str, name: str, places: tuple[int, ...], stack: ServingStack) -> tuple[str, ...]:
    """What the model can have written where a host returned this id of a tool call.

    Args:
        id: as returned.
        name: of the function.
        places: the call's possible numbers: in the reply, and in the conversation (public documents do not say
            which of the two the model counts).
        stack: the host's.
    """
    if stack.ids == "sampled":
        return (id,)
    if stack.ids == "bare":
        return (f"functions.{id}",) if _BARE_ID.fullmatch(id) else ()
    if _CANONICAL_ID.fullmatch(id):
        return ()
    return tuple(dict.fromkeys(f"functions.{name}:{place}" for place in places))
