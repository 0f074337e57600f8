"""Serving stacks run forwards over random completions: what the package runs backwards is tested against this.

Nothing here knows how a reply is read. `draw_completion` writes what a model can sample, `returned` what a host with a
serving stack makes of it, and `losses` what no inverse can restore, in words.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
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
    FORMATS,
    Special,
)
from kimi_helpers.replies import Reply, ToolCall, Usage
from kimi_helpers.request_terms import Asked
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.simulator.serving_stack import decode_faithfully, decode_with_blanks
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary, special_tables

Part = str | Special

ATOMS = (
    "a", "The", " the", " user", "don't", " I", " ", "  ", "\n", "\n\n", "\t", "\r\n", "42", " 7", "1234567", "中",
    "用户", " 中", "🎉", "é",
    "{", '"a": ', "<", "</", "think", ">", "|", "[EOS", "]", ".", " //", "\u2028", "\x00", "ﬁ", "क्षि",
    "\u3000", "hello world", " and so on", "x = 3.5e-7",
)  # fmt: skip
TYPED = (BEGIN_THINK, END_THINK, "[EOS]", END_TURN, "<|im_user|>", "<|tool_call_section_begin|>")
TOOL_MARKS = (BEGIN_SECTION, END_SECTION, BEGIN_CALL, BEGIN_ARGUMENTS, END_CALL)
NAMES = ("f", "get_weather", "a.b-c", "查询")
VALUES: tuple[Any, ...] = (
    0, 1, -7, 42, 3.5, True, None, "", "x", "Paris, France", "a: b", 'say "hi"', "北京", "C:\\tmp", "🎉", [],
    {}, [1, 2],
)  # fmt: skip
STRIPPABLE = ("", "", "", " ", "\n", "\n\n", "  ", " \n", "\t", "\r\n", "\n\n\n", "\n ", "\u3000", "\n\n\n\n\n", " \t ")


@dataclass(frozen=True)
class Call:
    """A tool call as it was sampled."""

    name: str
    id: str
    arguments: tuple[Part, ...]


@dataclass(frozen=True)
class Completion:
    """What a model sampled.

    Attributes:
        format: of `FORMATS`.
        thinking: whether the request left thinking on.
        reasoning, closes: the think section; whether `</think>` was sampled.
        missing: tokens that the model left out at the end of its tool section.
        tail: text behind the tool section.
        kept: how many of the ids the length limit left; None where the model ended its turn.
        earlier_calls: calls in the request's messages.
        forced: whether the request forced a call.
    """

    format: str
    thinking: bool
    reasoning: tuple[Part, ...]
    closes: bool
    content: tuple[Part, ...]
    calls: tuple[Call, ...]
    missing: int
    tail: str
    kept: int | None
    earlier_calls: int
    forced: bool

    @property
    def thinks(self) -> bool:
        """Whether there is a think section."""
        opening = FORMATS[self.format].opening_think
        return opening == "model" or (opening == "prompt" and self.thinking)

    @property
    def vocabulary(self) -> Vocabulary:
        """Of its format."""
        return load_vocabulary(format=self.format)

    @property
    def asked(self) -> Asked:
        """What the request fixes."""
        return Asked(self.thinking, self.earlier_calls, self.forced)

    @property
    def ids(self) -> tuple[int, ...]:
        """The token law, written out."""
        parts: list[Part] = []
        if self.thinks:
            parts += [Special(BEGIN_THINK)] if FORMATS[self.format].opening_think == "model" else []
            parts += [*self.reasoning, *([Special(END_THINK)] if self.closes else [])]
        parts += self.content
        if self.calls:
            section: list[Part] = [Special(BEGIN_SECTION)]
            for call in self.calls:
                section += [Special(BEGIN_CALL), call.id, Special(BEGIN_ARGUMENTS), *call.arguments, Special(END_CALL)]
            section.append(Special(END_SECTION))
            parts += [*section[: len(section) - self.missing], self.tail]
        parts.append(Special(END_TURN))
        vocabulary = self.vocabulary
        ids: list[int] = []
        for special, run in groupby(parts, key=lambda part: isinstance(part, Special)):
            if special:
                ids += [vocabulary.special_id(part.text) for part in run if isinstance(part, Special)]
            else:
                ids += vocabulary.encode("".join(part for part in run if isinstance(part, str)))
        return tuple(ids if self.kept is None else ids[: self.kept])


def _text(draw: random.Random, most: int = 6) -> str:
    texts = [draw.choice(ATOMS) for _ in range(draw.randint(0, most))]
    if draw.random() < 0.1:
        ranges = [draw.choice(((1, 0x2FF), (0x3000, 0xD7FF))) for _ in range(3)]
        texts.append("".join(chr(draw.randint(*each)) for each in ranges))
    if draw.random() < 0.12:
        texts.insert(draw.randint(0, len(texts)), draw.choice(TYPED))
    if draw.random() < 0.01:
        texts.insert(draw.randint(0, len(texts)), draw.choice(TOOL_MARKS))
    return "".join(texts)


def _field(draw: random.Random, specials: Sequence[str], vocabulary: Vocabulary) -> tuple[Part, ...]:
    """Nasty text with blanks around it, and now and then a special token in it."""
    parts: list[Part] = [draw.choice(STRIPPABLE) + _text(draw) + draw.choice(STRIPPABLE)]
    known = [text for text in specials if text in vocabulary.named]
    if known and draw.random() < 0.06:
        parts += [Special(draw.choice(known)), _text(draw, 3)]
    return tuple(parts)


def _json_text(draw: random.Random) -> str:
    """An object in one of the styles that models write, or with one blank more or less, or written oddly."""
    value: Any = {f"k{place}": draw.choice(VALUES) for place in range(draw.randint(0, 4))}
    if draw.random() < 0.2:
        value = {"outer": [value, draw.choice(VALUES)]}
    style = draw.choice((*("compact", "spaced") * 2, "commas", "indented", "one", "but one", "odd", "escaped"))
    if style == "indented":
        return json.dumps(value, ensure_ascii=False, indent=2)
    if style == "escaped":
        return json.dumps(value)
    # control characters in strings are escaped, so these two are the separators alone
    marked = json.dumps(value, ensure_ascii=False, separators=("\x01", "\x02"))
    places = [match.start() for match in re.finditer("[\x01\x02]", marked)]
    chosen = {
        "compact": set[int](),
        "spaced": set(places),
        "commas": {place for place in places if marked[place] == "\x01"},
        "one": set(places[:1]) if draw.random() < 0.5 else set(places[-1:]),
        "but one": set(places[1:]) if draw.random() < 0.5 else set(places[:-1]),
        "odd": {place for place in places if draw.random() < 0.5},
    }[style]
    written = "".join(char + " " * (place in chosen) for place, char in enumerate(marked))
    return written.replace("\x01", ",").replace("\x02", ":")


def _call(draw: random.Random, place: int, earlier: int, vocabulary: Vocabulary) -> Call:
    name = draw.choice(NAMES)
    id = f"functions.{name}:{place + draw.choice((0, earlier))}"
    if draw.random() < 0.05:
        id = draw.choice((f"{name}:{place}", "call_1a2b", "functionsexec5", f"functions.{name}"))
    around = draw.choice(("", "", "", "", "", " ", "\n")), draw.choice(("", "", "", "", "", " ", "\n", "\n\n"))
    if draw.random() < 0.7:
        return Call(name, id, (around[0] + _json_text(draw) + around[1],))
    return Call(name, id, _field(draw, ("[EOS]", BEGIN_THINK), vocabulary))


def draw_completion(draw: random.Random) -> Completion:
    """A random completion: any format, nasty text, calls in every state, cuts anywhere."""
    format = draw.choice(special_tables())
    vocabulary = load_vocabulary(format=format)
    thinking = draw.random() < 0.75
    earlier = draw.choice((0, 0, 1, 3))
    calls = tuple(_call(draw, place, earlier, vocabulary) for place in range(draw.choice((0, 0, 0, 1, 1, 2, 3))))
    closes = not calls or draw.random() < 0.85
    answers = draw.random() < (0.4 if calls else 0.95)
    drawn = Completion(
        format=format,
        thinking=thinking,
        reasoning=_field(draw, ("[EOS]", BEGIN_THINK), vocabulary) if draw.random() < 0.9 else (),
        closes=closes,
        content=_field(draw, ("[EOS]", BEGIN_THINK, END_THINK), vocabulary) if answers else (),
        calls=calls,
        missing=draw.choice((0, 0, 0, 0, 0, 0, 1, 2)) if calls else 0,
        tail=draw.choice(("\n", "ok", " ")) if calls and draw.random() < 0.02 else "",
        kept=None,
        earlier_calls=earlier,
        forced=bool(calls) and draw.random() < 0.2,
    )
    if drawn.thinks and not closes:
        drawn = replace(drawn, content=())
    if drawn.missing:
        drawn = replace(drawn, tail="")
    return replace(drawn, kept=draw.randint(1, len(drawn.ids))) if draw.random() < 0.25 else drawn


def draw_stack(draw: random.Random) -> ServingStack:
    """A stack made of the parts at random."""

    def sides() -> frozenset[Any]:
        fields = ("reasoning start", "reasoning end", "content start", "content end")
        return frozenset(side for side in fields if draw.random() < 0.5) if draw.random() < 0.4 else frozenset()

    return ServingStack(
        name=f"random {draw.randint(0, 10**6)}",
        seen="nowhere",
        blanks=draw.random() < 0.5,
        parses_reasoning=draw.random() < 0.85,
        strips_json=sides(),
        strips_stream=sides(),
        cuts_at_call=draw.random() < 0.3,
        arguments=draw.choice(("sampled", "compact", "spaced")),
        trims_arguments=draw.random() < 0.3,
        ids=draw.choice(("sampled", "sampled", "bare", "replaced")),
        counts_end=draw.random() < 0.7,
        counts_forced=draw.random() < 0.7,
        counts_reasoning=draw.random() < 0.4,
        strips_thinking_only=draw.random() < 0.3,
    )


@dataclass(frozen=True)
class _Fields:
    whole: str
    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    dropped: bool


_CALL = re.compile(
    rf"{re.escape(BEGIN_CALL)}(.*?){re.escape(BEGIN_ARGUMENTS)}(.*?)"
    rf"({re.escape(END_CALL)}|(?={re.escape(END_SECTION)})|\Z)",
    re.DOTALL,
)


def _parsed(text: str, stack: ServingStack, thinks: bool, keeps_open: bool) -> _Fields:
    """The parsers: of reasoning as vLLM's, of tools as those that keep or drop a call that was not closed."""
    reasoning, rest = "", text
    if thinks and stack.parses_reasoning:
        rest = text.removeprefix(BEGIN_THINK)
        ends = [place for mark in (END_THINK, BEGIN_SECTION) if (place := rest.find(mark)) >= 0]
        border = min(ends, default=len(rest))
        reasoning, rest = rest[:border], rest[border:].removeprefix(END_THINK)
    content, section, behind = rest.partition(BEGIN_SECTION)
    if not section:
        return _Fields(text, reasoning, content, (), False)
    if stack.cuts_at_call:
        content += behind.partition(BEGIN_CALL)[0]
    found = [match for match in _CALL.finditer(behind) if match[3] or keeps_open]
    kept = "".join(match[0] for match in found)
    visible = re.sub(r"\s", "", kept) + END_SECTION
    dropped = not visible.startswith(re.sub(r"\s", "", behind)) or not found
    return _Fields(text, reasoning, content, tuple((match[1].strip(), match[2]) for match in found), dropped)


def _decoded(ids: Sequence[int], vocabulary: Vocabulary, blanks: bool) -> str:
    shown = ids[:-1] if ids[-1] == vocabulary.special_id(END_TURN) else ids
    return "".join((decode_with_blanks if blanks else decode_faithfully)(vocabulary, shown))


def _strip(text: str, field: str, sides: frozenset[Any]) -> str:
    text = text.lstrip() if f"{field} start" in sides else text
    return text.rstrip() if f"{field} end" in sides else text


def _written(arguments: str, stack: ServingStack) -> str:
    if stack.trims_arguments:
        arguments = arguments.strip()
    if stack.arguments == "sampled":
        return arguments
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    separators = (",", ":") if stack.arguments == "compact" else (", ", ": ")
    return json.dumps(value, ensure_ascii=False, separators=separators)


_ID_RULES: Mapping[str, Callable[[str, int], str]] = {
    "sampled": lambda id, _: id,
    "bare": lambda id, _: id.removeprefix("functions."),
    "replaced": lambda _, place: f"call_{place:024x}",
}


def returned(
    completion: Completion, stack: ServingStack, streamed: bool, keeps_open: bool = True, host: str = "P"
) -> Reply | None:
    """The reply of a host with this stack; None where it would be no reply but a failure.

    Args:
        completion: what its model sampled.
        stack: the host's.
        streamed: how the reply was asked for.
        keeps_open: whether its tool parser keeps a call that was not closed.
        host: its name.
    """
    ids, vocabulary = completion.ids, completion.vocabulary
    sides = stack.strips("sse" if streamed else "json", completion.thinking or completion.thinks)
    text = _decoded(ids, vocabulary, stack.blanks)
    if "text start" in sides and completion.thinks:
        text = text.removeprefix(BEGIN_THINK)  # parsers that strip the whole text take it away first
    text = _strip(text, "text", sides)
    fields = _parsed(text, stack, completion.thinks, keeps_open and not stack.drops_open_calls)
    reasoning, content = _strip(fields.reasoning, "reasoning", sides), _strip(fields.content, "content", sides)
    calls = tuple(
        ToolCall(_ID_RULES[stack.ids](id, place), completion.calls[place].name, _written(arguments, stack))
        for place, (id, arguments) in enumerate(fields.calls[: len(completion.calls)])
    )
    cut = completion.kept is not None
    if not (content or calls or (reasoning and cut)):
        return None
    return Reply(
        reasoning=reasoning or None,
        reasoning_field="reasoning" if reasoning else None,
        content=content or None,
        tool_calls=calls,
        finish_reason="length" if cut else "tool_calls" if calls else "stop",
        native_finish_reasons=(),
        usage=Usage(None, _billed(completion, stack), _reasoning_tokens(ids, vocabulary), None, None),
        provider=host,
        model=f"moonshotai/{completion.format}",
        generation_id=None,
        logprobs=None,
        engine_token_ids=None,
        engine_prompt_token_ids=None,
        transport="sse" if streamed else "json",
        chunk_texts=(),
    )


def _billed(completion: Completion, stack: ServingStack) -> int:
    ids, vocabulary = completion.ids, completion.vocabulary
    count = len(ids)
    if ids[-1] == vocabulary.special_id(END_TURN) and not stack.counts_end:
        count -= 1
    if completion.forced and not stack.counts_forced:
        section, arguments = vocabulary.special_id(BEGIN_SECTION), vocabulary.special_id(BEGIN_ARGUMENTS)
        if section in ids:
            behind = ids[ids.index(section) :]
            count -= behind.index(arguments) + 1 if arguments in behind else len(behind)
    return count


def _reasoning_tokens(ids: Sequence[int], vocabulary: Vocabulary) -> int:
    for place, id in enumerate(ids):
        if id == vocabulary.special_id(BEGIN_SECTION):
            return place
        if END_THINK in vocabulary.named and id == vocabulary.special_id(END_THINK):
            return place + 1
    return len(ids) - (ids[-1] == vocabulary.special_id(END_TURN))


# What a strip or a trim can have taken and a reading puts back, written down here once more.
START = ("", " ", "\n", "\n\n", "  ", "\n ", "\n\n ", "\t")
END = ("", "\n", "\n\n", " ", "\n\n\n", "  ", " \n", "\r\n")


def losses(completion: Completion, stack: ServingStack, streamed: bool, keeps_open: bool = True) -> list[str]:
    """Why the ids of a completion are not among the readings of what the stack made of them; empty where they are."""
    ids, vocabulary = completion.ids, completion.vocabulary
    sides = stack.strips("sse" if streamed else "json", completion.thinking or completion.thinks)
    raw = _parsed(_decoded(ids, vocabulary, False), stack, completion.thinks, keeps_open and not stack.drops_open_calls)
    typed = _ordinary_texts(ids, vocabulary)
    found = []
    if completion.forced and not stack.counts_forced and completion.kept is not None and not raw.calls:
        found.append("a start that was forced, and not counted, may have been dropped")
    if completion.kept is not None and ids[-1] == vocabulary.special_id(END_TURN) and not stack.counts_end:
        found.append("the limit fell on the end token, which was sampled and not counted")
    if "\ufffd" in raw.whole:
        found.append("the cut fell inside a character")
    if any(vocabulary.encode(text) != list(run) for text, run in _runs(ids, vocabulary)):
        found.append("the cut left another split than the tokenizer's")
    if any(mark in text for text in typed for mark in TOOL_MARKS):
        found.append("a mark of a tool section was typed, and the parser took it for one")
    if completion.tail or raw.dropped:
        found.append("text behind the section, or a call that was not closed, was dropped")
    spelled = sum(len(vocabulary.spelling.findall(text)) for text in (raw.reasoning, raw.content))
    if spelled + sum(len(vocabulary.spelling.findall(text)) for _, text in raw.calls) > 8:
        found.append("too many special tokens are spelled")
    if completion.thinks and stack.parses_reasoning:
        found += _think_losses(completion, ids, vocabulary, sides)
    whole = raw.whole.removeprefix(BEGIN_THINK) if completion.thinks else raw.whole
    for field, text in (("text", whole), ("reasoning", raw.reasoning), ("content", raw.content)):
        if not _strip_is_listed(text, f"{field} start" in sides, f"{field} end" in sides, START, END):
            found.append(f"more blanks were stripped from the {field} than are tried")
    found += [why for id, arguments in raw.calls if (why := _call_loss(id, arguments, stack, completion))]
    return found


def _runs(ids: Sequence[int], vocabulary: Vocabulary) -> list[tuple[str, tuple[int, ...]]]:
    """The runs of ordinary tokens with their texts."""
    grouped = groupby(ids, key=vocabulary.special_ids.__contains__)
    runs = [tuple(run) for special, run in grouped if not special]
    return [(vocabulary.decode(run), run) for run in runs]


def _ordinary_texts(ids: Sequence[int], vocabulary: Vocabulary) -> list[str]:
    return [text for text, _ in _runs(ids, vocabulary)]


def _think_losses(
    completion: Completion, ids: Sequence[int], vocabulary: Vocabulary, sides: frozenset[Any]
) -> list[str]:
    front = vocabulary.decode(ids[:8]).startswith(BEGIN_THINK)
    if FORMATS[completion.format].opening_think == "prompt" and front:
        return ["`<think>` at the front was dropped"]
    close = vocabulary.special_id(END_THINK)
    before = ids[: ids.index(close)] if close in ids else ids
    if not any(END_THINK in text for text in _ordinary_texts(before, vocabulary)):
        return []
    if close not in ids:
        return ["the parser cut at a typed `</think>`, and none was sampled"]
    return ["blanks were stripped beside a typed `</think>`"] if sides & {"reasoning end", "content start"} else []


def _strip_is_listed(text: str, start: bool, end: bool, starts: Sequence[str], ends: Sequence[str]) -> bool:
    starts, ends = starts if start else ("",), ends if end else ("",)
    bare = text.strip() if start and end else text.lstrip() if start else text.rstrip() if end else text
    return text in {first + bare + last for first in starts for last in ends}


def _call_loss(id: str, arguments: str, stack: ServingStack, completion: Completion) -> str:
    if stack.ids != "sampled" and not re.fullmatch(r"functions\..+:\d+", id):
        return "a malformed id was rewritten"
    if stack.arguments != "sampled":
        try:
            value = json.loads(arguments)
        except ValueError:
            pass
        else:
            return "" if arguments in _styles(value) else "arguments in a style that is not tried were dumped again"
    if stack.trims_arguments and not _strip_is_listed(arguments, True, True, START, END):
        return "more blanks were trimmed from arguments than are tried"
    return ""


def _styles(value: Any) -> set[str]:
    marked = json.dumps(value, ensure_ascii=False, separators=("\x01", "\x02"))
    places = [match.start() for match in re.finditer("[\x01\x02]", marked)]
    commas = {place for place in places if marked[place] == "\x01"}
    choices = [set[int](), set(places), commas]
    choices += [chosen for place in places for chosen in ({place}, set(places) - {place})]
    written = {"".join(char + " " * (place in chosen) for place, char in enumerate(marked)) for chosen in choices}
    plain = {text.replace("\x01", ",").replace("\x02", ":") for text in written}
    return plain | {json.dumps(value, ensure_ascii=False, indent=2)}
