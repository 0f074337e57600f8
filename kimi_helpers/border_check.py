"""The check that text cannot give: how likely the target model finds each token of a row.

Ids that were reconstructed wrongly are seldom what the model would have sampled. The measure is a token's gap: by how
many nats it is less likely than the likeliest token in its place. What the model itself sampled has a large gap only
now and then, a wrong end token nearly always; how often others do is measured in the notebook 06_hidden_states. A flag
is a doubt, not a proof, and no flag proves nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kimi_helpers.capture_rows import CaptureRow
from kimi_helpers.hidden_states import CapturedRow
from kimi_helpers.vocabulary import Vocabulary

GAP = 15.0  # nats: the likeliest token is three million times as likely
WORST = 3


@dataclass(frozen=True)
class DoubtfulToken:
    """One token of a row and how likely it is.

    Attributes:
        place: in the row, from 0.
        id: its id.
        logprob: natural logarithm of its probability.
        gap: nats below the likeliest token in its place.
        at_border: whether it stands at a border of a segment.
    """

    place: int
    id: int
    logprob: float
    gap: float
    at_border: bool


@dataclass(frozen=True)
class BorderReport:
    """How likely the model finds what a row says it sampled.

    Attributes:
        row_id: the row.
        tokens: how many sampled tokens were scored.
        mean_logprob: over them.
        worst: the tokens with the largest gaps, worst first.
        worst_border: the one at a border with the largest gap; None where none is scored.
    """

    row_id: str
    tokens: int
    mean_logprob: float
    worst: tuple[DoubtfulToken, ...]
    worst_border: DoubtfulToken | None

    @property
    def gap(self) -> float:
        """The largest gap of the row, which the flag and the ROC curve go by."""
        return self.worst[0].gap if self.worst else 0.0

    def is_flagged(self, threshold: float = GAP) -> bool:
        """Whether a token is so unlikely that the row should be looked at."""
        return self.gap > threshold


def border_places(row: CaptureRow, special_ids: Collection[int]) -> list[int]:
    """Places of sampled tokens at borders: first and last of a sampled run, special tokens, neighbours of one."""
    sampled = row.mask.astype(bool)
    special = np.isin(row.ids, list(special_ids))
    edge = np.ones(row.ids.size, bool)
    edge[1:-1] = ~(sampled[:-2] & sampled[2:])
    beside = special.copy()
    beside[1:] |= special[:-1]
    beside[:-1] |= special[1:]
    places: list[int] = np.flatnonzero(sampled & (edge | beside)).tolist()
    return places


def report_row(captured: CapturedRow, special_ids: Collection[int]) -> BorderReport:
    """The report of a row that was captured with scores.

    Raises:
        ValueError: it was captured without.
    """
    if captured.scores is None:
        raise ValueError(f"{captured.row.row_id} was captured without scores; give capture_states top=0.")
    row, scores = captured.row, captured.scores
    borders = set(border_places(row, special_ids))
    places = np.flatnonzero(row.mask.astype(bool) & ~np.isnan(scores.logprob))
    gaps = scores.best - scores.logprob

    def doubtful(place: int) -> DoubtfulToken:
        logprob, gap = float(scores.logprob[place]), float(gaps[place])
        return DoubtfulToken(place, int(row.ids[place]), logprob, gap, place in borders)

    ordered = [doubtful(place) for place in places[np.argsort(-gaps[places], kind="stable")].tolist()]
    mean = float(scores.logprob[places].mean()) if places.size else float("nan")
    at_border = next((token for token in ordered if token.at_border), None)
    return BorderReport(row.row_id, int(places.size), mean, tuple(ordered[:WORST]), at_border)


Plant = Callable[[CaptureRow, Vocabulary, np.random.Generator], CaptureRow | None]
"""Puts one error into a right row; None where the row has no place for it."""


def _changed(row: CaptureRow, kind: str, start: int, stop: int, ids: Sequence[int]) -> CaptureRow:
    """The row with other sampled ids from `start` to `stop`."""
    new_ids = np.concatenate([row.ids[:start], np.asarray(ids, np.int32), row.ids[stop:]]).astype(np.int32)
    mask = np.concatenate([row.mask[:start], np.ones(len(ids), np.uint8), row.mask[stop:]]).astype(np.uint8)
    return CaptureRow(row.index, f"{row.row_id} {kind}", new_ids, mask)


def _ordinary_places(row: CaptureRow, vocabulary: Vocabulary) -> list[int]:
    return [place for place in np.flatnonzero(row.mask).tolist() if int(row.ids[place]) not in vocabulary.special_ids]


def plant_wrong_end(row: CaptureRow, vocabulary: Vocabulary, rng: np.random.Generator) -> CaptureRow | None:
    """The end token becomes an ordinary token, as a table of another vocabulary would have it."""
    if int(row.ids[-1]) not in vocabulary.special_ids:
        return None
    return _changed(row, "wrong end", row.ids.size - 1, row.ids.size, [int(rng.choice(vocabulary.ordinary_ids))])


def plant_emptied_opening(row: CaptureRow, vocabulary: Vocabulary, rng: np.random.Generator) -> CaptureRow | None:
    """The first half of what was sampled is gone, as a template that empties the reasoning leaves it."""
    places = _ordinary_places(row, vocabulary)
    if len(places) < 8:
        return None
    return _changed(row, "emptied opening", places[0], places[len(places) // 2], [])


def plant_moved_blank(row: CaptureRow, vocabulary: Vocabulary, rng: np.random.Generator) -> CaptureRow | None:
    """A blank more in front of a sampled word, as a host that joins pieces adds it."""
    blank = vocabulary.id_of_bytes(b" ")
    words = [
        place for place in _ordinary_places(row, vocabulary) if _is_word(vocabulary.token_bytes(int(row.ids[place])))
    ]
    if blank is None or not words:
        return None
    place = int(rng.choice(words))
    return _changed(row, "moved blank", place, place, [blank])


def _is_word(token: bytes) -> bool:
    return len(token) > 2 and token[:1] == b" " and token[1:].isalpha()


def plant_other_split(row: CaptureRow, vocabulary: Vocabulary, rng: np.random.Generator) -> CaptureRow | None:
    """A sampled token becomes two that spell the same."""
    splits = []
    for place in _ordinary_places(row, vocabulary):
        token = vocabulary.token_bytes(int(row.ids[place]))
        for cut in range(1, len(token)):
            left, right = vocabulary.id_of_bytes(token[:cut]), vocabulary.id_of_bytes(token[cut:])
            if left is not None and right is not None:
                splits.append((place, left, right))
    if not splits:
        return None
    place, left, right = splits[int(rng.integers(len(splits)))]
    return _changed(row, "other split", place, place + 1, [left, right])


PLANTS: Mapping[str, Plant] = {
    "wrong end token": plant_wrong_end,
    "emptied opening": plant_emptied_opening,
    "moved blank": plant_moved_blank,
    "other split": plant_other_split,
}


@dataclass(frozen=True)
class Roc:
    """How well a score tells wrong rows from right ones.

    Attributes:
        false_alarms: share of right rows above each threshold, ascending, shape [n].
        found: share of wrong rows above it, shape [n].
        area: under the curve: the chance that a wrong row scores above a right one; 0.5 says nothing, 1 all.
    """

    false_alarms: np.ndarray
    found: np.ndarray
    area: float


def roc(right: Sequence[float], wrong: Sequence[float]) -> Roc:
    """The ROC curve of scores that are high for wrong rows; ties count half."""
    thresholds = np.unique(np.concatenate([right, wrong]))[::-1]
    false_alarms, found = (
        np.concatenate([[0.0], [np.mean(np.asarray(scores) >= threshold) for threshold in thresholds]])
        for scores in (right, wrong)
    )
    return Roc(false_alarms, found, float(np.trapezoid(found, false_alarms)))
