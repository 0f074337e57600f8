"""What the model was given and what it sampled for a request: the truth behind a reply.

A run asks every host for the same prompts, so the ids of a request are kept for a while: the same request gives the
same ids at every host, whole or streamed, however short it is cut.
"""

import json
from dataclasses import dataclass
from functools import lru_cache

from kimi_helpers.formats import ModelFormat
from kimi_helpers.simulator.chat_request import ChatRequest
from kimi_helpers.simulator.noncanonical import split_anew
from kimi_helpers.simulator.scripted_model import draw_for, sample, write_turn
from kimi_helpers.vocabulary import Vocabulary

KEPT_REQUESTS = 512

_OF_ONE_REPLY = {"stream", "max_tokens", "max_completion_tokens", "provider", "logprobs", "return_token_ids"}


@dataclass(frozen=True)
class Completion:
    """A prompt and what was sampled after it.

    Attributes:
        prompt_ids: token ids of the prompt.
        token_ids: the sampled ids, the end token included where it was sampled.
        thinking: whether the reply thinks, so that a host's reasoning parser runs over it.
        ended: whether the last id is the end token; false where `max_tokens` cut the reply.
        forced: whether the request forced a tool call.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    thinking: bool
    ended: bool
    forced: bool = False


def complete(
    asked: ChatRequest,
    format: ModelFormat,
    vocabulary: Vocabulary,
    system_prompt: str | None = None,
    noncanonical_rate: float = 0.0,
) -> Completion:
    """Render the prompt of a request and sample the scripted model's turn, cut where the request says.

    Args:
        asked: the request.
        format: of the model asked for.
        vocabulary: of that format.
        system_prompt: the system message that a conversation without one gets.
        noncanonical_rate: share of replies in which one place is split otherwise than the tokenizer does.

    Raises:
        PromptError: a message the template cannot render.
    """
    question = json.dumps(asked.model_dump(exclude=_OF_ONE_REPLY))
    thinks = _thinks(asked, format)
    ids = _sampled_ids(question, format, vocabulary, thinks, noncanonical_rate)
    kept = ids[: asked.limit]
    return Completion(
        prompt_ids=_prompt_ids(question, format, vocabulary, system_prompt),
        token_ids=kept,
        thinking=thinks,
        ended=len(kept) == len(ids),
        forced=asked.must_call(),
    )


def _thinks(asked: ChatRequest, format: ModelFormat) -> bool:
    """K2-Thinking opens its own think section and has no switch."""
    return format.opening_think == "model" or (format.opening_think == "prompt" and asked.thinking)


@lru_cache(maxsize=KEPT_REQUESTS)
def _prompt_ids(
    question: str, format: ModelFormat, vocabulary: Vocabulary, system_prompt: str | None
) -> tuple[int, ...]:
    asked = ChatRequest.model_validate(json.loads(question))
    messages = asked.prompt_messages(system_prompt)
    return tuple(format.prompt_ids(vocabulary, messages, asked.tools, asked.thinking))


@lru_cache(maxsize=KEPT_REQUESTS)
def _sampled_ids(
    question: str, format: ModelFormat, vocabulary: Vocabulary, thinks: bool, noncanonical_rate: float
) -> tuple[int, ...]:
    asked = ChatRequest.model_validate(json.loads(question))
    ids = sample(write_turn(asked, thinks), format, vocabulary)
    draw = draw_for(asked, "split")
    return tuple(split_anew(ids, vocabulary, draw) if draw.random() < noncanonical_rate else ids)
