"""Whether the evidence could have settled a reply: another completion that its host would return and bill just so.

Where there is one, no reader of the reply can tell the two apart, and calling the reply exact would be a guess. The
search is forwards alone: it changes what was sampled and runs the host over it, and knows nothing of how replies are
read. It looks for the tokenizer's own splits only; other splits of the same text are counted apart.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, product

from kimi_helpers.formats import BEGIN_ARGUMENTS, BEGIN_CALL, END_TURN
from kimi_helpers.simulator.answers import Answer, answer
from kimi_helpers.simulator.call_rewriting import IdRule
from kimi_helpers.simulator.completions import Completion
from kimi_helpers.simulator.hosts import Host
from kimi_helpers.vocabulary import Vocabulary

_BLANKS = tuple("".join(blanks) for length in range(4) for blanks in product(" \n\t", repeat=length))
_LAST_TOKENS = ("a", " the", "1", "}", '"', "中", "\n")
_MOST_PAIRS = 2_000

Run = tuple[int, ...]
Seen = tuple[object, ...]


@dataclass(frozen=True)
class _Change:
    """One run of a completion's ids written otherwise, where the host's reply stays as it is but for its count."""

    place: int
    ids: Run
    more: int


def find_witness(host: Host, vocabulary: Vocabulary, completion: Completion, streamed: bool) -> tuple[int, ...] | None:
    """Other ids that the host would return and bill as it did the completion's; None where none was found.

    None is no proof that there are none, so a share of settled replies that counts it as settleable is a lower bound.
    """
    host = replace(host, write_id=_with_same_digits(host.write_id))
    runs = [tuple(group) for _, group in groupby(completion.token_ids, key=vocabulary.special_ids.__contains__)]
    seen = _seen(host, vocabulary, completion, streamed)
    changes = []
    for place, others in _alternatives(runs, vocabulary, completion):
        for ids in others:
            changed = _with(runs, [(place, ids)])
            if ids != runs[place] and _seen(host, vocabulary, replace(completion, token_ids=changed), streamed) == seen:
                changes.append(_Change(place, ids, len(ids) - len(runs[place])))
    singles = ([change] for change in changes if not change.more)
    pairs = (
        list(pair)
        for pair in combinations(changes, 2)
        if not sum(change.more for change in pair) and pair[0].place != pair[1].place
    )
    billed = answer(host, vocabulary, completion, streamed).completion_tokens
    for tries, chosen in enumerate((*singles, *pairs)):
        other = replace(completion, token_ids=_with(runs, [(change.place, change.ids) for change in chosen]))
        is_seen = _seen(host, vocabulary, other, streamed) == seen
        if is_seen and answer(host, vocabulary, other, streamed).completion_tokens == billed:
            return other.token_ids
        if tries > _MOST_PAIRS:
            break
    return None


def _with_same_digits(write: IdRule) -> IdRule:
    """Made-up tool ids say nothing: a rule that makes them all alike."""
    return lambda id, digits: write(id, "0" * len(digits))


def _with(runs: Sequence[Run], changes: Sequence[tuple[int, Run]]) -> tuple[int, ...]:
    new = list(runs)
    for place, ids in changes:
        new[place] = ids
    return tuple(id for run in new for id in run)


def _seen(host: Host, vocabulary: Vocabulary, completion: Completion, streamed: bool) -> Seen:
    """All that a reply shows but its count."""
    given: Answer = answer(host, vocabulary, completion, streamed)
    calls = [(call.id, call.name, "".join(call.arguments)) for call in given.calls]
    return "".join(given.reasoning), "".join(given.content), calls, given.finish_reason


def _alternatives(
    runs: Sequence[Run], vocabulary: Vocabulary, completion: Completion
) -> Iterator[tuple[int, Iterator[Run]]]:
    """For each run what else could stand there, in the tokenizer's own split."""
    opening, begin = vocabulary.special_id(BEGIN_ARGUMENTS), vocabulary.special_id(BEGIN_CALL)
    for place, run in enumerate(runs):
        before = runs[place - 1][-1] if place else None
        if before == begin:
            continue
        if run[0] in vocabulary.special_ids:
            yield place, _spelled(run, vocabulary)
            continue
        text = vocabulary.decode(run)
        yield place, _encoded(_other_blanks(text), vocabulary)
        if before == opening:
            yield place, _encoded(_other_json(text), vocabulary)
        yield place, _sampled_marks(text, vocabulary)
        if place == len(runs) - 1 and not completion.ended:
            yield place, ((*run[:-1], *vocabulary.encode(last)) for last in _LAST_TOKENS)


def _encoded(texts: Iterator[str], vocabulary: Vocabulary) -> Iterator[Run]:
    return (tuple(vocabulary.encode(text)) for text in texts)


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


def _spelled(run: Run, vocabulary: Vocabulary) -> Iterator[Run]:
    """Special tokens typed as text instead, the end of the turn excepted."""
    for place, id in enumerate(run):
        if id != vocabulary.special_id(END_TURN):
            typed = vocabulary.encode(vocabulary.decode([id]))
            yield (*run[:place], *typed, *run[place + 1 :])


def _sampled_marks(text: str, vocabulary: Vocabulary) -> Iterator[Run]:
    """Special tokens sampled where they are typed."""
    for found in vocabulary.spelling.finditer(text):
        before, after = (vocabulary.encode(part) for part in (text[: found.start()], text[found.end() :]))
        yield (*before, vocabulary.special_id(found.group()), *after)
