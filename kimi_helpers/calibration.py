"""Calibration: a small set of prompts, asked of each host whole and streamed, whose replies tell what the host does.

The prompts are in `data/calibration/prompts.jsonl`: a prompt a line, with what it may tell (`tells`, names of
`host_findings.PARTS`), about how many tokens a reply takes (`tokens`), and where they apply `max_tokens` and
`tool_choice`. What a calibration of one host costs is estimated before anything is sent.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from kimi_helpers.formats import ModelFormat
from kimi_helpers.openrouter import request_body
from kimi_helpers.prompts import Prompt
from kimi_helpers.vocabulary import Vocabulary
from kimi_helpers.workspace import DATA

CALIBRATION = DATA / "calibration" / "prompts.jsonl"
DATASET = "calibration"

# Moonshot's own sampling for thinking; a reply that needs more tokens than this has lost its way.
TEMPERATURE, TOP_P, MOST_TOKENS = 1.0, 0.95, 4096


class CalibrationError(ValueError):
    """A set of calibration prompts that cannot be used; the message says where and why."""


@dataclass(frozen=True)
class CalibrationPrompt:
    """A prompt and what its replies may tell.

    Attributes:
        prompt: the conversation.
        tells: names of the parts of a host that it may settle.
        tokens: about how many completion tokens a reply takes.
        max_tokens: the limit that is sent.
        tool_choice: where a call is forced.
    """

    prompt: Prompt
    tells: tuple[str, ...]
    tokens: int
    max_tokens: int = MOST_TOKENS
    tool_choice: str | None = None


@dataclass(frozen=True)
class _Row:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    messages: list[dict[str, Any]]
    tokens: int = Field(gt=0)
    tells: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    thinking: bool = True
    max_tokens: int = Field(default=MOST_TOKENS, gt=0)
    tool_choice: Literal["required"] | None = None


@dataclass(frozen=True)
class Estimate:
    """What a calibration of one host takes.

    Attributes:
        requests: how many are sent.
        prompt_tokens: of all requests, by our own rendering.
        completion_tokens: about how many come back.
        dollars: about what that costs; None where a price is not known.
        most_dollars: what it costs if every reply reaches its limit.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    dollars: Decimal | None
    most_dollars: Decimal | None


def read_calibration(path: Path = CALIBRATION) -> list[CalibrationPrompt]:
    """The calibration prompts of a file.

    Raises:
        CalibrationError: the file cannot be read, or a line is no calibration prompt.
    """
    try:
        lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError as error:
        raise CalibrationError(f"{path} cannot be read: {error.strerror}.") from None
    prompts = []
    for number, line in enumerate(lines, 1):
        try:
            row = TypeAdapter(_Row).validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the row"
            raise CalibrationError(f"{path}, line {number}: {place}: {first['msg']}.") from None
        prompt = Prompt(row.id, tuple(row.messages), tuple(row.tools) if row.tools else None, row.thinking)
        prompts.append(CalibrationPrompt(prompt, tuple(row.tells), row.tokens, row.max_tokens, row.tool_choice))
    if len({each.prompt.id for each in prompts}) < len(prompts) or not prompts:
        raise CalibrationError(f"{path}: it is empty or repeats an id; give each prompt its own.")
    return prompts


def calibration_request(
    asked: CalibrationPrompt, model: str, provider: str, stream: bool, evidence: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The body of a calibration request, pinned to one host.

    Args:
        model: `author/slug`.
        provider: a slug of the endpoint listing.
        stream: whether the reply is to be streamed.
        evidence: `logprobs`, `return_token_ids` or both, for an endpoint that lists them.
    """
    body = request_body(
        asked.prompt,
        model,
        provider,
        max_tokens=asked.max_tokens,
        temperature=TEMPERATURE,
        top_p=TOP_P,
        seed=None,
        stream=stream,
        system="",  # a host's own default prompt shows only where there is none
        return_token_ids="return_token_ids" in evidence,
        logprobs="logprobs" in evidence,
    )
    return body if asked.tool_choice is None else {**body, "tool_choice": asked.tool_choice}


def calibration_requests(
    prompts: Sequence[CalibrationPrompt],
    model: str,
    provider: str,
    samples: int,
    evidence: frozenset[str] = frozenset(),
) -> Iterator[tuple[CalibrationPrompt, int, dict[str, Any]]]:
    """Every request of one host's calibration with its prompt and sample: each prompt whole and streamed."""
    for sample in range(samples):
        for asked in prompts:
            for stream in (False, True):
                yield asked, sample, calibration_request(asked, model, provider, stream, evidence)


def estimate(
    prompts: Sequence[CalibrationPrompt],
    vocabulary: Vocabulary,
    format: ModelFormat,
    prompt_price: Decimal | None,
    completion_price: Decimal | None,
    samples: int = 1,
) -> Estimate:
    """What the calibration of one host takes, at its prices in dollars a token.

    Prompts are counted by our own rendering; a host that puts a system prompt in front bills a little more.
    """
    times = 2 * samples
    asked = sum(
        len(format.prompt_ids(vocabulary, list(each.prompt.messages), _tools(each), each.prompt.thinking))
        for each in prompts
    )
    about, most = sum(each.tokens for each in prompts), sum(each.max_tokens for each in prompts)
    return Estimate(
        requests=times * len(prompts),
        prompt_tokens=times * asked,
        completion_tokens=times * about,
        dollars=_dollars(times * asked, prompt_price, times * about, completion_price),
        most_dollars=_dollars(times * asked, prompt_price, times * most, completion_price),
    )


def _tools(asked: CalibrationPrompt) -> list[Mapping[str, Any]] | None:
    return list(asked.prompt.tools) if asked.prompt.tools else None


def _dollars(
    asked: int, prompt_price: Decimal | None, answered: int, completion_price: Decimal | None
) -> Decimal | None:
    if prompt_price is None or completion_price is None:
        return None
    return asked * prompt_price + answered * completion_price


def prompts_that_tell(part: str, prompts: Sequence[CalibrationPrompt]) -> list[str]:
    """The ids of the prompts that may settle a part."""
    return [each.prompt.id for each in prompts if part in each.tells]


def prompt_id_of(request: Mapping[str, Any] | None, prompts: Sequence[CalibrationPrompt]) -> str | None:
    """The id of the calibration prompt behind a request; None where it is none of them."""
    if request is None:
        return None
    said = json.dumps(request.get("messages"), sort_keys=True)
    return next(
        (each.prompt.id for each in prompts if json.dumps(list(each.prompt.messages), sort_keys=True) == said), None
    )
