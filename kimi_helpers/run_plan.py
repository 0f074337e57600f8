"""What a run asks for: the settings that its replies share, and each request in its order."""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice

from kimi_helpers.apis import Api
from kimi_helpers.journal import exchange_key
from kimi_helpers.openrouter import MAX_TOKENS, SYSTEM_MESSAGE, encode_body, request_body
from kimi_helpers.prompts import Prompt
from kimi_helpers.targets import Target

PROMPTS_A_LOOK = 64


@dataclass(frozen=True)
class Settings:
    """What all replies of a journal share.

    Attributes:
        dataset: the name of the prompt set.
        model: `author/slug`.
        seed: of the first sample; each further sample counts one up. None: no seed is sent.
        stream: ask for server-sent events, which show where a reply broke off.
        return_token_ids, logprobs: ask for better evidence of the tokens, where an endpoint offers it.
        system: put before conversations without a system message; "" leaves them to the host's habit.
        unpinned: leave the choice of the provider to the gateway. Such replies cannot be reconstructed.
    """

    dataset: str
    model: str
    max_tokens: int = MAX_TOKENS
    temperature: float = 1.0
    top_p: float = 0.95
    seed: int | None = None
    stream: bool = True
    return_token_ids: bool = False
    logprobs: bool = False
    system: str = SYSTEM_MESSAGE
    unpinned: bool = False


@dataclass(frozen=True)
class Job:
    """One sample of one prompt from one endpoint."""

    prompt: Prompt
    target: Target
    sample: int

    def request(self, settings: Settings, api: Api) -> bytes:
        """The request's bytes. They are made anew for each use: a large run would not fit into memory otherwise."""
        body = request_body(
            self.prompt,
            settings.model,
            self.target.slug,
            api=api,
            quantization=self.target.quantization,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=None if settings.seed is None else settings.seed + self.sample,
            stream=settings.stream,
            system=settings.system,
            return_token_ids=settings.return_token_ids and self.target.offers("return_token_ids"),
            logprobs=settings.logprobs and self.target.offers("logprobs"),
        )
        return encode_body(body)

    def key(self, settings: Settings, api: Api) -> str:
        """What the journal knows it by."""
        return exchange_key(settings.dataset, self.prompt.id, self.sample, self.request(settings, api))


@dataclass(frozen=True)
class Plan:
    """Prompts and how often each is asked. First samples come first, so that a run broken off covers all prompts.

    Attributes:
        prompts: gone through once a sample.
    """

    prompts: Iterable[Prompt]
    settings: Settings
    samples: int = 1

    def size(self) -> int | None:
        """How many requests each endpoint gets; None where the prompts have to be gone through to know."""
        return len(self.prompts) * self.samples if isinstance(self.prompts, Sized) else None

    def looks(self, target: Target, api: Api) -> Iterator[dict[str, Job]]:
        """The requests to an endpoint by their keys, some at a time; one that stands twice in those is one."""
        for sample in range(self.samples):
            prompts = iter(self.prompts)
            while some := [Job(prompt, target, sample) for prompt in islice(prompts, PROMPTS_A_LOOK)]:
                yield {job.key(self.settings, api): job for job in some}
