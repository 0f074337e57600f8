"""The billed `prompt_tokens` against our own rendering of the request: which prompt did the model see?

A count is weak evidence. The more deviations a request leaves room for, the likelier one of them fits by chance: of
offsets up to ten tokens from the plain count, one in seven is that of a single known deviation, or of a pair, where
short conversations declare tools, and one in twenty elsewhere. So the list of deviations is short, no three are
combined, the reason says how many renderings were tried, and a deviation is to be trusted where it explains all
replies of a host. A change that keeps the count (an order of keys, another wording) no count can show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kimi_helpers.formats import ModelFormat
from kimi_helpers.prompt_renderings import Ids, renderings
from kimi_helpers.vocabulary import Vocabulary


class PromptGrade(StrEnum):
    """How well the ids of a prompt are proven, best first."""

    engine_ids = "engine_ids"
    equal = "equal"
    identified = "identified"
    unknown = "unknown"
    unchecked = "unchecked"


@dataclass(frozen=True)
class PromptCheck:
    """The prompt that a model saw and what its ids are worth.

    Attributes:
        prompt_ids: shape [n]. The engine's own, or ours with `deviations`; where the grade is `unknown` or
            `unchecked` our plain rendering, which the model may not have seen, or empty if there is none.
        grade: `engine_ids`: the engine returned them. `equal`: the count is that of our rendering and of no other
            tried. `identified`: it is that of one rendering with deviations. `unknown`: of none or of several, or
            the request cannot be rendered. `unchecked`: no request or no count.
        deviations: what the host did otherwise than the template, at most two; empty where nothing is known.
        stated_tokens: the host's `prompt_tokens`.
        rendered_tokens: the length of our plain rendering, None where there is none.
        reason: one sentence on the grade.
    """

    prompt_ids: Ids
    grade: PromptGrade
    deviations: tuple[str, ...]
    stated_tokens: int | None
    rendered_tokens: int | None
    reason: str


def check_prompt(
    request: Mapping[str, Any] | None,
    stated: int | None,
    vocabulary: Vocabulary,
    format: ModelFormat,
    *,
    thinking: bool | None = None,
    engine_prompt_ids: Sequence[int] | None = None,
) -> PromptCheck:
    """Check the prompt of a reply. Nothing is raised, whatever the request holds.

    Args:
        request: the body of a chat-completions request, as JSON gives it; None where it was not kept.
        stated: the host's `prompt_tokens`.
        thinking: whether the request leaves thinking on; None, where nothing says so, is on.
        engine_prompt_ids: the prompt's ids as the engine returned them (vLLM's `prompt_token_ids`).
    """
    tried: dict[Ids, tuple[str, ...]] = {}
    problem = "no request was kept" if request is None else ""
    if request is not None:
        most = 0 if stated is None and engine_prompt_ids is None else 2
        try:
            tried = renderings(request, vocabulary, format, thinking is not False, most)
        except (ValueError, RecursionError) as error:
            problem = f"the request cannot be rendered ({str(error).rstrip('.')})"
    plain = next(iter(tried), None)
    if engine_prompt_ids is not None:
        ids, grade, reason = _by_engine(tuple(engine_prompt_ids), stated, vocabulary, tried, problem)
    elif plain is None:
        grade = PromptGrade.unchecked if request is None else PromptGrade.unknown
        ids, reason = (), problem
    elif stated is None:
        ids, grade, reason = plain, PromptGrade.unchecked, "no prompt_tokens were stated to check our rendering by"
    else:
        ids, grade, reason = _by_count(stated, plain, tried)
    known = grade in (PromptGrade.engine_ids, PromptGrade.identified)
    rendered = None if plain is None else len(plain)
    return PromptCheck(ids, grade, tried.get(ids, ()) if known else (), stated, rendered, f"{reason}.")


def _by_count(stated: int, plain: Ids, tried: Mapping[Ids, Sequence[str]]) -> tuple[Ids, PromptGrade, str]:
    fits = [ids for ids in tried if len(ids) == stated]
    offset = f"{stated} tokens were stated, {stated - len(plain):+d} against our rendering"
    if not fits:
        return plain, PromptGrade.unknown, f"{offset}, and none of {len(tried)} renderings tried fits"
    if len(fits) > 1:
        found = " ".join(_label(tried[ids]) for ids in fits)
        return plain, PromptGrade.unknown, f"{offset}, and {len(fits)} of {len(tried)} renderings tried fit {found}"
    if fits == [plain]:
        return plain, PromptGrade.equal, f"{stated} tokens were stated, as many as our rendering has"
    found = _label(tried[fits[0]])
    return fits[0], PromptGrade.identified, f"{offset}, and one of {len(tried)} renderings tried fits {found}"


def _by_engine(
    ids: Ids, stated: int | None, vocabulary: Vocabulary, tried: Mapping[Ids, Sequence[str]], problem: str
) -> tuple[Ids, PromptGrade, str]:
    """The engine's ids, unless they belong to another vocabulary or another prompt than the billed one."""
    plain = next(iter(tried), ())
    if outside := [id for id in ids if not 0 <= id < vocabulary.size]:
        return plain, PromptGrade.unknown, f"the engine returned prompt id {outside[0]}, outside the vocabulary"
    if stated is not None and stated != len(ids):
        return plain, PromptGrade.unknown, f"the engine returned {len(ids)} prompt ids, but {stated} were stated"
    ours = f"they equal our rendering {_label(tried[ids])}" if ids in tried else "they equal no rendering tried"
    return ids, PromptGrade.engine_ids, f"the engine returned the prompt's ids; {problem or ours}"


def _label(deviations: Sequence[str]) -> str:
    return f"({' and '.join(deviations) or 'as the template has it'})"
