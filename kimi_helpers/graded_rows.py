"""Replies as graded rows: plain values for JSON lines, tables and notebooks."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any

from kimi_helpers.count_doubts import LEFT_THE_LAW
from kimi_helpers.formats import ModelFormat, format_of_model
from kimi_helpers.profile_choice import host_of
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.prompt_check import PromptCheck, PromptGrade, check_prompt
from kimi_helpers.reading_search import ID_BYTES, unpacked
from kimi_helpers.reconstruction import Grade, Reconstruction, failed, reconstruct
from kimi_helpers.replies import Failure, Reply
from kimi_helpers.reply_sources import ABOUT_SUFFIX, SourcedReply
from kimi_helpers.request_terms import read_request, thinking_asked
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import printable, write_whole


@dataclass(frozen=True)
class GradedRow:
    """One reply with its ids and grade.

    Attributes:
        source: where the reply was read.
        host: whose reply it is: the provider, or where it names none, a name made from the model's slug.
        provider: as the reply states it.
        model: the canonical slug, as the reply states it.
        format: whose token law was used; None for a model that is none of Kimi's.
        transport: `json` or `sse`.
        generation_id: as the reply states it.
        finish_reason: `stop`, `tool_calls` or `length`; None where there is no reply.
        grade: of `Grade`.
        data: packed completion ids; empty where unresolved or failed.
        completion_tokens: the billed count.
        reconstructed_tokens: the count that the text makes, to stand beside it.
        readings: how many distinct id sequences fit.
        stack: the serving stack behind the ids; None where none explains the reply.
        end_token: whether the end-of-turn token was counted; None where nothing fits.
        reason: one sentence on the grade.
        prompt_grade: of `PromptGrade`: how well the prompt that the model saw is known.
        prompt_ids: the prompt, shape [m]; what it is worth the grade says.
        prompt_tokens: the stated count.
        prompt_reason: one sentence on the prompt's grade.
        split: how ids that the host returned split their text; None where they rest on a count.
    """

    source: str
    host: str
    provider: str | None
    model: str | None
    format: str | None
    transport: str | None
    generation_id: str | None
    finish_reason: str | None
    grade: Grade
    data: bytes
    completion_tokens: int | None
    reconstructed_tokens: int | None
    readings: int
    end_token: str | None
    stack: str | None
    reason: str
    prompt_grade: PromptGrade
    prompt_ids: tuple[int, ...]
    prompt_tokens: int | None
    prompt_reason: str
    split: str | None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Completion ids, shape [n]."""
        return tuple(unpacked(self.data).tolist())

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """Shape [n], 1 on what the model sampled; the prompt is not part of it, so all ones."""
        return (1,) * (len(self.data) // ID_BYTES)

    def plain(self) -> dict[str, Any]:
        """The row in plain values, `token_ids` and `loss_mask` in place of `data`."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "data"}
        return values | {"token_ids": self.token_ids, "loss_mask": self.loss_mask}


def grade_replies(
    replies: Iterable[SourcedReply],
    vocabulary_of: Callable[[ModelFormat], Vocabulary],
    profiles: Mapping[str, ProviderProfile],
    format: ModelFormat | None = None,
) -> Iterator[GradedRow]:
    """Grade replies one by one.

    Args:
        replies: of `read_sources`.
        vocabulary_of: the vocabulary to use for a format.
        profiles: by host, of `read_profiles` or `profiles_of_batch`; a host without one is never exact by its counts.
        format: the layout of all replies; by default each reply's model tells.
    """
    for reply in replies:
        outcome = reply.outcome
        layout = format or format_of_model(outcome.model or "")
        if isinstance(outcome, Failure):
            yield graded_row(reply, layout, failed(outcome), None)
        elif layout is None:
            yield graded_row(reply, None, unknown_model(outcome), None)
        else:
            vocabulary, profile = vocabulary_of(layout), profiles.get(host_of(outcome))
            result = reconstruct(outcome, vocabulary, layout, profile, read_request(reply.request))
            yield graded_row(reply, layout, result, prompt_of_reply(reply.request, outcome, vocabulary, layout))


def unknown_model(reply: Reply) -> Reconstruction:
    """What there is to say of a reply whose token law is not known."""
    reason = f"the model {reply.model or '(unnamed)'} is none whose token law is known; name its format if it is"
    return Reconstruction(b"", Grade.unresolved, reason)


def prompt_of(
    request: Mapping[str, Any] | None,
    stated: int | None,
    vocabulary: Vocabulary,
    layout: ModelFormat,
    engine_ids: Sequence[int] | None = None,
) -> PromptCheck:
    """`check_prompt`, with what the request says about thinking."""
    thinking = None if request is None else thinking_asked(request)
    return check_prompt(request, stated, vocabulary, layout, thinking=thinking, engine_prompt_ids=engine_ids)


def prompt_of_reply(
    request: Mapping[str, Any] | None, reply: Reply, vocabulary: Vocabulary, layout: ModelFormat
) -> PromptCheck:
    """The check of the prompt behind a reply."""
    stated = reply.usage.prompt_tokens if reply.usage else None
    return prompt_of(request, stated, vocabulary, layout, reply.engine_prompt_token_ids)


def graded_row(
    sourced: SourcedReply, layout: ModelFormat | None, result: Reconstruction, prompt: PromptCheck | None
) -> GradedRow:
    """The row of a reply from its reconstruction and the check of its prompt (None where there is no reply)."""
    outcome = sourced.outcome
    fits = bool(result.data)
    return GradedRow(
        source=sourced.source,
        host=host_of(outcome),
        provider=outcome.provider,
        model=outcome.model,
        format=layout.name if layout else None,
        transport=outcome.transport,
        generation_id=outcome.generation_id,
        finish_reason=None if isinstance(outcome, Failure) else outcome.finish_reason,
        grade=result.grade,
        data=result.data,
        completion_tokens=outcome.usage.completion_tokens if outcome.usage else None,
        reconstructed_tokens=result.reconstructed_tokens,
        readings=len(result.candidates) if fits else 0,
        end_token=result.candidates[0].end_token if fits else None,
        stack=result.stack,
        reason=result.reason,
        prompt_grade=prompt.grade if prompt else PromptGrade.unchecked,
        prompt_ids=prompt.prompt_ids if prompt else (),
        prompt_tokens=prompt.stated_tokens if prompt else None,
        prompt_reason=prompt.reason if prompt else "there is no reply.",
        split=result.split,
    )


def count_grades(rows: Iterable[GradedRow]) -> dict[str, int]:
    """How many rows have each grade, best grade first, none left out."""
    counts = Counter(row.grade for row in rows)
    return {grade.value: counts[grade] for grade in Grade}


def describe_as_returned(rows: Iterable[GradedRow]) -> str:
    """How many replies need no serving stack: rows that were graded without any profile, as a sentence."""
    counted = [row for row in rows if row.completion_tokens is not None and row.format and row.grade != Grade.failed]
    met = sum(row.grade != Grade.unresolved and LEFT_THE_LAW not in row.reason for row in counted)
    return (
        f"The text as returned makes the billed count of {met} of {len(counted)} counted replies,"
        " with or without a counted end token."
    )


def describe_splits(splits: Mapping[str | None, int]) -> str:
    """What ids that rest on a count may hide: another split into as many tokens, as often as known ids showed it.

    Args:
        splits: how many rows have each `split`.
    """
    known = sum(number for split, number in splits.items() if split)
    law = "exact_unique holds up to another split of the same text into as many tokens, which no count can show"
    if not known:
        return f"{law}; no host returned ids here, by which its rate could be measured."
    return f"{law}; of {known} replies whose ids the host returned, {splits.get('same length', 0)} are split so."


def about_rows(profiles: Mapping[str, ProviderProfile], splits: Mapping[str | None, int]) -> dict[str, Any]:
    """What a reader of graded rows has to know: the version, the profiles used, and what no count can exclude.

    Args:
        profiles: by host.
        splits: how many rows have each `split`.
    """
    return {
        "version": version("kimi-helpers"),
        "profiles": {host: [stack.name for stack in profile.stacks] for host, profile in profiles.items()},
        "residual": describe_splits(splits),
    }


def write_rows(path: Path, rows: Sequence[GradedRow], profiles: Mapping[str, ProviderProfile]) -> None:
    """Write a JSON object a line, and beside it `about_rows` as `NAME.about.json`; each is there whole or not at all.

    Lines end in `\\n` only; other line separators inside text are escaped, since many readers cut at them.
    """
    lines = (json.dumps(row.plain(), separators=(",", ":")) + "\n" for row in rows)
    about = about_rows(profiles, Counter(row.split for row in rows))
    write_whole(path.with_suffix(ABOUT_SUFFIX), json.dumps(about, ensure_ascii=False, indent=1).encode())
    write_whole(path, "".join(lines).encode())


def table_text(rows: Sequence[GradedRow], most: int = 60) -> str:
    """The rows as a table, then the grades by provider; of more than `most` rows the grades alone."""
    listed = [
        {
            "source": printable(Path(row.source).name),
            "provider": printable(row.provider or "-"),
            "format": row.format or "-",
            "grade": row.grade.value,
            "billed": "-" if row.completion_tokens is None else str(row.completion_tokens),
            "reconstructed": "-" if row.reconstructed_tokens is None else str(row.reconstructed_tokens),
            "reason": shorten(printable(row.reason), 100, placeholder=" ..."),
        }
        for row in rows
    ]
    parts = [_aligned(listed)] if len(rows) <= most else []
    return "\n\n".join([*parts, grades_text(grades_by_provider(rows))])


def grades_text(grades: Mapping[str, Mapping[str, int]]) -> str:
    """A line a provider: how many replies it has, and how many of each grade."""
    return _aligned(
        [
            {"provider": printable(provider), "replies": str(sum(counts.values()))}
            | {grade: str(number) for grade, number in counts.items()}
            for provider, counts in grades.items()
        ]
    )


def grades_by_provider(rows: Iterable[GradedRow]) -> dict[str, dict[str, int]]:
    """Provider -> grade -> number of rows, in the order of the providers' first rows."""
    groups: dict[str, list[GradedRow]] = {}
    for row in rows:
        groups.setdefault(row.host, []).append(row)
    return {provider: count_grades(group) for provider, group in groups.items()}


def _aligned(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of equal keys as columns."""
    if not rows:
        return ""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    lines = [{name: name for name in widths}, *rows]
    return "\n".join("  ".join(line[name].ljust(width) for name, width in widths.items()).rstrip() for line in lines)
