"""Whether the evidence could have settled a reply: another completion that its host would return and bill just so.

Where there is one, no reader of the reply can tell the two apart, and calling the reply exact would be a guess. The
search is forwards alone: it changes what was sampled and runs the host over it, and knows nothing of how replies are
read. It looks for the tokenizer's own splits only; other splits of the same text are counted apart.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, groupby, islice, product

from kimi_helpers.formats import BEGIN_ARGUMENTS, BEGIN_CALL, BEGIN_SECTION, END_SECTION, END_TURN
from kimi_helpers.simulator.answers import answer
from kimi_helpers.simulator.call_rewriting import IdRule
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import Host
from kimi_helpers.vocabulary import Vocabulary

_BLANKS = tuple("".join(blanks) for length in range(4) for blanks in product(" \n\t", repeat=length))
_LAST_WORDS = ("a", " the", "1", "}", '"', "中", "\n")
_MOST_PAIRS = 2_000

Part = int | str
"""A special token by its id, or a text between two of them."""
Seen = tuple[object, ...]


@dataclass(frozen=True)
class _Change:
    """One part of a completion written otherwise, which the host's reply shows in its count at most."""

    place: int
    parts: tuple[Part, ...]
    more: int


def find_witness(host: Host, vocabulary: Vocabulary, completion: Completion, streamed: bool) -> tuple[int, ...] | None:
    """Other ids that the host would return and bill as it did the completion's; None where none was found.

    None is no proof that there are none, so a share of settled replies that counts it as settleable is a lower bound.
    Texts are taken in the tokenizer's own split; one that ends inside a character cannot be written otherwise.
    """
    host = replace(host, write_id=_with_same_digits(host.write_id))
    parts = _parts(completion.token_ids, vocabulary)

    def ids_with(changes: Sequence[_Change]) -> tuple[int, ...]:
        new: list[tuple[Part, ...]] = [(part,) for part in parts]
        for change in changes:
            new[change.place] = change.parts
        return _ids([part for each in new for part in each], vocabulary)

    def look(ids: tuple[int, ...]) -> tuple[Seen, int]:
        return _look(host, vocabulary, replace(completion, token_ids=ids), streamed)

    own = ids_with([])
    seen, billed = look(own)
    changes = []
    for place, others in enumerate(_alternatives(parts, vocabulary, completion.ended)):
        for other in others:
            ids = ids_with([_Change(place, other, 0)])
            if ids != own and look(ids)[0] == seen:
                changes.append(_Change(place, other, len(ids) - len(own)))
    pairs = (pair for pair in combinations(changes, 2) if pair[0].place != pair[1].place)
    balanced = (pair for pair in pairs if -1 <= sum(change.more for change in pair) <= 1)
    for chosen in (*((change,) for change in changes if not change.more), *islice(balanced, _MOST_PAIRS)):
        ids = ids_with(chosen)
        if ids != own and look(ids) == (seen, billed):
            return ids
    return None


def _with_same_digits(write: IdRule) -> IdRule:
    """Made-up tool ids say nothing: a rule that makes them all alike."""
    return lambda id, digits: write(id, "0" * len(digits))


def _parts(ids: Sequence[int], vocabulary: Vocabulary) -> list[Part]:
    parts: list[Part] = []
    for is_special, group in groupby(ids, key=vocabulary.special_ids.__contains__):
        run = list(group)
        parts += run if is_special else [vocabulary.decode(run)]
    return parts


def _ids(parts: Sequence[Part], vocabulary: Vocabulary) -> tuple[int, ...]:
    """Ids of special tokens and of the texts between them; neighbouring texts are one."""
    ids: list[int] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, str)):
        run = list(group)
        ids += vocabulary.encode("".join(map(str, run))) if is_text else map(int, run)
    return tuple(ids)


def _look(host: Host, vocabulary: Vocabulary, completion: Completion, streamed: bool) -> tuple[Seen, int]:
    """All that a reply shows, and its count."""
    given = answer(host, vocabulary, completion, streamed)
    calls = [(call.id, call.name, "".join(call.arguments)) for call in given.calls]
    return ("".join(given.reasoning), "".join(given.content), calls, given.finish_reason), given.completion_tokens


def _alternatives(parts: Sequence[Part], vocabulary: Vocabulary, ended: bool) -> Iterator[Iterator[tuple[Part, ...]]]:
    """For each part what else could stand there."""
    opening, begin = vocabulary.special_id(BEGIN_ARGUMENTS), vocabulary.special_id(BEGIN_CALL)
    for place, part in enumerate(parts):
        before = parts[place - 1] if place else None
        others = []
        if isinstance(part, int):
            others.append(_spelled(part, vocabulary))
        elif before != begin:
            others += [((text,) for text in _other_blanks(part)), _sampled_marks(part, vocabulary)]
            if before == opening:
                others.append((text,) for text in _other_json(part))
        if place == len(parts) - 1 and not ended:
            others += [_with_a_call_begun(part, vocabulary), _with_another_end(part, vocabulary)]
        yield chain.from_iterable(others)


def _other_blanks(text: str) -> Iterator[str]:
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    yield from (blanks + text[start:] for blanks in _BLANKS)
    yield from (text[:end] + blanks for blanks in _BLANKS)


def _other_json(text: str) -> Iterator[str]:
    """The same JSON, or the same text, with other blanks between its parts."""
    try:
        value = json.loads(text)
    except ValueError:
        return
    for separators in ((",", ":"), (", ", ": "), (",", ": "), (", ", ":")):
        yield json.dumps(value, ensure_ascii=False, separators=separators)
    yield json.dumps(value, ensure_ascii=False, indent=2)
    for place, character in enumerate(text):
        if character in ",:{}[]":
            yield f"{text[: place + 1]} {text[place + 1 :].lstrip()}"
            yield f"{text[: place + 1]}{text[place + 1 :].lstrip()}"
            yield f"{text[:place].rstrip()} {text[place:]}"


def _spelled(id: int, vocabulary: Vocabulary) -> Iterator[tuple[Part, ...]]:
    """A special token typed as text, the end of the turn excepted; and a tool section that was not closed."""
    if id == vocabulary.special_id(END_SECTION):
        yield ()
    if id != vocabulary.special_id(END_TURN):
        yield (vocabulary.decode([id]),)


def _sampled_marks(text: str, vocabulary: Vocabulary) -> Iterator[tuple[Part, ...]]:
    """Special tokens sampled where they are typed."""
    for found in vocabulary.spelling.finditer(text):
        yield text[: found.start()], vocabulary.special_id(found.group()), text[found.end() :]


def _with_a_call_begun(part: Part, vocabulary: Vocabulary) -> Iterator[tuple[Part, ...]]:
    """What a parser drops at the end of a cut reply: the start of a tool section."""
    begun = (part, vocabulary.special_id(BEGIN_SECTION), vocabulary.special_id(BEGIN_CALL), "functions")
    yield from (begun[:length] for length in (2, 3, 4))


def _with_another_end(part: Part, vocabulary: Vocabulary) -> Iterator[tuple[Part, ...]]:
    """Another last token."""
    kept = vocabulary.decode(vocabulary.encode(part)[:-1]) if isinstance(part, str) else ""
    yield from ((kept + word,) for word in _LAST_WORDS)
