"""What a host makes of prompts: the deviations from the template that explain all its stated `prompt_tokens`.

One deviation of a request fits a count by chance; it is believed where it explains every request of a host.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kimi_helpers.formats import ModelFormat, PromptError
from kimi_helpers.host_findings import Finding
from kimi_helpers.prompt_renderings import rendering_lengths
from kimi_helpers.request_terms import thinking_asked
from kimi_helpers.stack_inference import Witness
from kimi_helpers.vocabulary import Vocabulary


@dataclass(frozen=True)
class _Counted:
    """A request with its stated count."""

    stated: int
    plain: int
    lengths: Mapping[frozenset[str], int]
    has_system: bool

    @property
    def room_for(self) -> frozenset[str]:
        """The deviations that the request leaves room for."""
        return frozenset(name for names in self.lengths for name in names)

    def fits(self, deviations: frozenset[str]) -> bool:
        """Whether a host with these deviations states this count."""
        return self.lengths.get(deviations & self.room_for) == self.stated


def prompt_finding(witnesses: Sequence[Witness], vocabulary_of: Callable[[ModelFormat], Vocabulary]) -> Finding:
    """Which deviations explain the `prompt_tokens` of a host; where none explains all, the offsets that are left."""
    counted = list(_counted(witnesses, vocabulary_of))
    if not counted:
        return Finding("prompt", (), 0, 0, "prompt")
    hypotheses = dict.fromkeys(names for each in counted for names in each.lengths)
    scores = {names: sum(each.fits(names) for each in counted) for names in hypotheses}
    best = max(scores.values())
    if best < len(counted):
        return Finding("prompt", (f"unknown: {_offsets(counted)}",), len(counted), len(counted), "prompt")
    smallest = min(len(names) for names, score in scores.items() if score == best)
    fitting = [names for names, score in scores.items() if score == best and len(names) == smallest]
    values = tuple(_words(names) for names in fitting)
    return Finding("prompt", values, len(counted), best, "prompt")


def _words(names: frozenset[str]) -> str:
    return " and ".join(sorted(names)) or "as the template has it"


def _offsets(counted: Sequence[_Counted]) -> str:
    told = []
    for has_system, words in ((False, "without a system message"), (True, "with one")):
        offsets = Counter(each.stated - each.plain for each in counted if each.has_system == has_system)
        if offsets:
            told.append(f"{', '.join(f'{offset:+d}' for offset, _ in offsets.most_common(3))} tokens {words}")
    return "; ".join(told)


def _counted(witnesses: Sequence[Witness], vocabulary_of: Callable[[ModelFormat], Vocabulary]) -> list[_Counted]:
    """The requests whose count is stated; renderings of the same request are made once."""
    lengths: dict[str, Mapping[frozenset[str], int] | None] = {}
    found = []
    for witness in witnesses:
        request, usage = witness.sourced.request, witness.reply.usage
        if request is None or usage is None or usage.prompt_tokens is None:
            continue
        said = json.dumps([request.get(name) for name in ("messages", "tools", "reasoning")] + [witness.format.name])
        if said not in lengths:
            lengths[said] = _lengths(request, witness.format, vocabulary_of(witness.format))
        if (known := lengths[said]) is not None:
            found.append(_Counted(usage.prompt_tokens, known[frozenset()], known, _has_system(request)))
    return found


def _lengths(
    request: Mapping[str, Any], format: ModelFormat, vocabulary: Vocabulary
) -> Mapping[frozenset[str], int] | None:
    try:
        return rendering_lengths(request, vocabulary, format, thinking_asked(request))
    except (PromptError, ValueError, RecursionError):
        return None  # it cannot be rendered, so it says nothing


def _has_system(request: Mapping[str, Any]) -> bool:
    return any(message.get("role") == "system" for message in request["messages"])
