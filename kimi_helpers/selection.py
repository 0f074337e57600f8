"""Which rows a training set takes, by a policy that is one small file; every row left out is counted by its reason."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kimi_helpers.profiles import read_profiles
from kimi_helpers.prompt_check import PromptGrade
from kimi_helpers.reconstruction import Grade
from kimi_helpers.token_lists import flat_rows
from kimi_helpers.training import vocabulary_of

RESTS_ON_COUNT = (Grade.exact_unique, Grade.exact_ambiguous)
LANGUAGE_TOKENS = 400  # of a completion, from which its language is told

Reasons = NDArray[np.object_]
"""Why each row is left out, shape [rows]; empty for a row that is taken."""


class PolicyError(ValueError):
    """A policy that cannot be used; the message names the file and what is wrong."""


class DatasetTerms(BaseModel):
    """What a policy says of one dataset.

    Attributes:
        licence, origin: for the data card.
        cap: at most so many rows; None: all.
        weight: rows for each row of a dataset of weight 1; None: not weighed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    licence: str = "not stated"
    origin: str = "not stated"
    cap: int | None = Field(default=None, ge=0)
    weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Policy(BaseModel):
    """What is taken; `data/policies/exact.toml` says what each field means. Paths are absolute once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grades: tuple[Grade, ...] = tuple(grade for grade in Grade if grade.is_exact)
    prompt_grades: tuple[PromptGrade, ...] = (PromptGrade.engine_ids, PromptGrade.equal, PromptGrade.identified)
    finish_reasons: tuple[str, ...] = ("stop", "tool_calls")
    least_completion: int = Field(default=1, ge=1)
    most_completion: int = Field(default=0, ge=0)
    most_tokens: int = Field(default=0, ge=0)
    languages: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    without_providers: tuple[str, ...] = ()
    profiles: str = ""
    profile_replies: int = Field(default=10, ge=1)
    near_duplicates: float = Field(default=0.0, ge=0, le=1)
    benchmarks: tuple[str, ...] = ()
    benchmark_words: int = Field(default=13, ge=4)
    evaluation: float = Field(default=0.02, ge=0, lt=1)
    datasets: Mapping[str, DatasetTerms] = Field(default_factory=dict)


def read_policy(path: Path | str) -> Policy:
    """The policy of a TOML file.

    Raises:
        PolicyError: no such file, not TOML, a field unknown or of the wrong type, a file it names is not there.
    """
    try:
        policy = Policy.model_validate(tomllib.loads(Path(path).read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{path} cannot be read as a TOML policy: {error}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise PolicyError(f"{path}: {place}: {first['msg']}; see data/policies/exact.toml.") from None
    folder = Path(path).resolve().parent
    named = {"profiles": str(folder / policy.profiles) if policy.profiles else ""}
    absolute = policy.model_copy(update=named | {"benchmarks": tuple(str(folder / name) for name in policy.benchmarks)})
    for file in filter(None, (absolute.profiles, *absolute.benchmarks)):
        if not Path(file).is_file():
            raise PolicyError(f"{path} names {file}, which is not there: write its path from the policy's folder.")
    return absolute


def reasons(rows: pa.Table, policy: Policy, tokenizer: str | None = None) -> Reasons:
    """Why each of some rows is left out by a policy: the first reason that applies.

    Args:
        rows: of `ROW_SCHEMA`.
        tokenizer: as `load_vocabulary`'s `source`, to read text from ids where languages are asked for.
    """
    found: Reasons = np.full(len(rows), "", object)
    for is_out, words, values in _criteria(rows, policy):
        _leave_out(found, is_out, words, values)
    if policy.languages:
        left = np.flatnonzero(found == "")
        told = languages(rows.take(left), tokenizer)
        for place, language in zip(left.tolist(), told, strict=True):
            if language not in policy.languages:
                found[place] = f"language {language}"
    return found


def _leave_out(found: Reasons, is_out: NDArray[np.bool_], words: str, values: pa.ChunkedArray | None) -> None:
    fresh = np.flatnonzero(is_out & (found == ""))
    if not fresh.size:
        return
    if values is None:
        found[fresh] = words
    else:
        told = values.take(fresh).to_pylist()
        found[fresh] = [f"{words} {value or 'not stated'}".strip() for value in told]


def _criteria(rows: pa.Table, policy: Policy) -> Iterator[tuple[NDArray[np.bool_], str, pa.ChunkedArray | None]]:
    """What a policy asks of each row: which rows fail, and the reason: words, and a value of each row behind them."""

    def other_than(column: str, allowed: Sequence[str]) -> NDArray[np.bool_]:
        is_in: NDArray[np.bool_] = pc.is_in(rows[column], pa.array(allowed, pa.string())).to_numpy()
        return ~is_in

    prompt, completion = (rows[name].to_numpy() for name in ("prompt_length", "completion_length"))
    yield other_than("grade", policy.grades), "grade", rows["grade"]
    yield pc.is_valid(rows["fault"]).to_numpy(), "", rows["fault"]
    yield other_than("prompt_grade", policy.prompt_grades), "prompt grade", rows["prompt_grade"]
    yield other_than("finish_reason", policy.finish_reasons), "finish reason", rows["finish_reason"]
    if policy.providers:
        yield other_than("provider", policy.providers), "provider not asked for", None
    if policy.without_providers:
        yield ~other_than("provider", policy.without_providers), "provider not wanted", None
    if policy.profiles:
        for words, good in _profile_states(policy.profiles, policy.profile_replies).items():
            rests_on_count = ~other_than("grade", RESTS_ON_COUNT)
            yield rests_on_count & other_than("provider", good), words, None
    yield completion < policy.least_completion, "completion too short", None
    if policy.most_completion:
        yield completion > policy.most_completion, "completion too long", None
    if policy.most_tokens:
        yield prompt + completion > policy.most_tokens, "prompt and completion too long", None


@cache
def _profile_states(policy_profiles: str, replies: int) -> Mapping[str, Sequence[str]]:
    """What can be wrong with the profile that a row rests on -> the providers with which it is not."""
    known = read_profiles(policy_profiles)
    enough = [name for name, profile in known.items() if profile.replies is None or profile.replies >= replies]
    return {"provider without a profile": list(known), "profile rests on too few replies": enough}


def languages(rows: pa.Table, tokenizer: str | None = None) -> list[str]:
    """The language of each row's completion, as an ISO 639-1 code, told from its first `LANGUAGE_TOKENS` tokens.

    Short texts and code are often told wrongly.
    """
    from py3langid.langid import classify  # noqa: PLC0415  (half a second, and few policies ask)

    ids, offsets = flat_rows(rows["input_ids"])
    starts = offsets[:-1] + rows["prompt_length"].to_numpy()
    told = []
    for start, end, format in zip(starts.tolist(), offsets[1:].tolist(), rows["format"].to_pylist(), strict=True):
        vocabulary = vocabulary_of(tokenizer, format)
        part = ids[start : min(end, start + LANGUAGE_TOKENS)]
        told.append(str(classify(vocabulary.decode(part[part < vocabulary.ranks].tolist()))[0]))
    return told
