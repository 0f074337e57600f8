"""A chat-completions request, read as OpenRouter reads it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

Named = Annotated[str, Field(min_length=1)]


class RequestError(ValueError):
    """A request that cannot be answered; the message says what is wrong with it."""


class CalledFunction(BaseModel):
    """The arguments of a past tool call: as text, or as an object that a template writes out."""

    arguments: str | dict[str, Any]


class PastCall(BaseModel):
    """A tool call of the history."""

    id: str
    function: CalledFunction


class Part(BaseModel):
    """A part of a message's content."""

    type: str
    text: str = ""


class Message(BaseModel):
    """What a chat template reads of a message; past reasoning comes under either of two names."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[PastCall] | None = None
    tool_call_id: str | None = None


class Reasoning(BaseModel):
    """The part of `reasoning` that switches thinking off."""

    effort: str | None = None
    enabled: bool | None = None


class ProviderPreferences(BaseModel):
    """The part of `provider` that picks a host."""

    only: list[str] | None = None


class ChatRequest(BaseModel):
    """A request's fields that decide its reply; the others are ignored."""

    model_config = ConfigDict(frozen=True)

    model: Named
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    stream: bool = False
    seed: int | None = None
    reasoning: Reasoning | None = None
    reasoning_effort: str | None = None
    provider: ProviderPreferences | None = None
    logprobs: bool = False
    return_token_ids: bool = False

    @field_validator("tools")
    @classmethod
    def _have_named_functions(cls, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for place, tool in enumerate(tools or ()):
            if not _names_function(tool):
                raise ValueError(f"tool {place} declares no function with a name")
        return tools

    @model_validator(mode="after")
    def _can_be_forced(self) -> Self:
        if self.must_call() and not self.callable_functions():
            raise ValueError("tool_choice forces a call of a function that tools does not declare")
        return self

    @property
    def limit(self) -> int | None:
        """The most tokens the reply may have."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def thinking(self) -> bool:
        """Whether thinking is left on."""
        asked = self.reasoning or Reasoning()
        return asked.enabled is not False and "none" not in (asked.effort, self.reasoning_effort)

    @property
    def only(self) -> list[str] | None:
        """The hosts that `provider.only` names; None where the request leaves the choice open."""
        return self.provider.only if self.provider else None

    def prompt_messages(self, system_prompt: str | None = None) -> list[dict[str, Any]]:
        """The messages as chat templates want them: past reasoning under `reasoning_content`.

        Args:
            system_prompt: of a system message that is put in front where the request has none.
        """
        messages = [
            {**message.model_dump(), "reasoning_content": message.reasoning_content or message.reasoning}
            for message in self.messages
        ]
        if system_prompt is None or any(message.role == "system" for message in self.messages):
            return messages
        return [{"role": "system", "content": system_prompt}, *messages]

    def last_text(self) -> str:
        """The text of the last user message, for its subject only."""
        said = [message.content for message in self.messages if message.role == "user"]
        if not said or said[-1] is None:
            return ""
        return said[-1] if isinstance(said[-1], str) else " ".join(part.text for part in said[-1])

    def callable_functions(self) -> list[Mapping[str, Any]]:
        """The functions that `tool_choice` leaves to be called."""
        functions: list[Mapping[str, Any]] = [tool["function"] for tool in self.tools or ()]
        if isinstance(self.tool_choice, dict):
            chosen = self.tool_choice.get("function")
            return [function for function in functions if chosen == {"name": function["name"]}]
        return [] if self.tool_choice == "none" else functions

    def must_call(self) -> bool:
        """Whether `tool_choice` forces a tool call."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, dict)

    def past_calls(self) -> int:
        """How many tools were called before: the index in a tool id runs over the conversation."""
        return sum(len(message.tool_calls or ()) for message in self.messages)


def _names_function(tool: Mapping[str, Any]) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def read_request(body: bytes) -> ChatRequest:
    """Read the body of `POST /chat/completions`.

    Raises:
        RequestError: the body is no JSON object, or a field is missing or wrong.
    """
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON") from None
    if not isinstance(told, dict):
        raise RequestError("the body is not a JSON object")
    try:
        return ChatRequest.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the request"
        raise RequestError(f"{field}: {first['msg']}") from None
