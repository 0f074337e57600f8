"""Inferred serving stacks against true ones: random hosts, made forwards of the parts, asked the calibration prompts.

    python benchmarks/stack_inference.py [--hosts 200] [--freaks 0.02] [--prompts N] [--seed 0]

A host is a random combination of the parts, run forwards by `tests/forward_stacks.py` over what the scripted model
answers to the calibration prompts, once whole and once streamed. `--freaks` is the share of replies whose billed count
is one or two higher, as where a model splits a word otherwise than the tokenizer. `--prompts` takes that many of the
prompts at random, as few as a user may have. Printed: `right`, the inferred stack is the true one and alone; `named`,
it is among those not told apart; `wrong`, neither; `none`, no stack explains the host.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from kimi_helpers.calibration import CalibrationPrompt, calibration_request, read_calibration
from kimi_helpers.formats import FORMATS, ModelFormat
from kimi_helpers.reply_sources import SourcedReply
from kimi_helpers.serving_stacks import ServingStack
from kimi_helpers.simulator.chat_request import ChatRequest
from kimi_helpers.simulator.scripted_model import Turn, write_turn
from kimi_helpers.stack_inference import Inference, Judge, infer_stack, witnesses_by_host
from kimi_helpers.stack_space import plain_form, stack_name
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary
from tests.forward_stacks import Call, Completion, draw_stack, returned

MODEL = "moonshotai/kimi-k2.5"
FORMAT = FORMATS["kimi-k2.5"]


@dataclass(frozen=True)
class Outcome:
    """What became of one random host."""

    stack: ServingStack
    inference: Inference
    requests: int

    @property
    def verdict(self) -> str:
        """`right`, `named`, `wrong` or `none`."""
        if not self.inference.open:
            return "none"
        if not self.inference.leaves_open(self.stack):
            return "wrong"
        return "right" if [plain_form(self.stack)] == list(self.inference.stacks()) else "named"


def vocabulary_of(format: ModelFormat) -> Vocabulary:
    """Of Kimi."""
    return load_vocabulary(format=format.name)


def as_completion(turn: Turn, asked: ChatRequest, kept: int | None) -> Completion:
    """A scripted turn as the forward stacks take it."""
    calls = tuple(Call(id.removeprefix("functions.").rpartition(":")[0], id, (text,)) for id, text in turn.calls)
    whole = Completion(
        format=FORMAT.name,
        thinking=asked.thinking,
        reasoning=(turn.reasoning,) if turn.reasoning else (),
        closes=turn.closes_thinking,
        content=(turn.content,) if turn.content else (),
        calls=calls,
        missing=0,
        tail="",
        kept=None,
        earlier_calls=asked.past_calls(),
        forced=asked.must_call(),
    )
    return whole if kept is None or kept >= len(whole.ids) else replace(whole, kept=kept)


def replies_of(
    stack: ServingStack, prompts: Sequence[CalibrationPrompt], draw: random.Random, freaks: float
) -> Iterator[SourcedReply]:
    """The replies of a host with this stack."""
    for prompt in prompts:
        for streamed in (False, True):
            request = calibration_request(prompt, MODEL, "random", streamed)
            asked = ChatRequest.model_validate(request)
            completion = as_completion(write_turn(asked, asked.thinking), asked, asked.limit)
            reply = returned(completion, stack, streamed)
            if reply is None or reply.usage is None or reply.usage.completion_tokens is None:
                continue
            if draw.random() < freaks and reply.finish_reason != "length":
                longer = reply.usage.completion_tokens + draw.choice((1, 1, 2))
                reply = replace(reply, usage=replace(reply.usage, completion_tokens=longer))
            yield SourcedReply(f"{prompt.prompt.id} {streamed}", request, reply)


def measure(hosts: int, freaks: float, most: int | None, seed: int) -> Iterator[Outcome]:
    """Infer the stacks of random hosts."""
    draw = random.Random(seed)
    prompts = read_calibration()
    for _ in range(hosts):
        stack = draw_stack(draw)
        asked = prompts if most is None else draw.sample(prompts, most)
        replies = list(replies_of(stack, asked, draw, freaks))
        witnesses = witnesses_by_host(replies, vocabulary_of)
        inference = infer_stack("P", witnesses.get("P", []), Judge(vocabulary_of))
        yield Outcome(stack, inference, 2 * len(asked))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--freaks", type=float, default=0.02)
    parser.add_argument("--prompts", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start = perf_counter()
    outcomes = list(measure(given.hosts, given.freaks, given.prompts, given.seed))
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    print(f"{given.hosts} random hosts, {outcomes[0].requests} requests each, seed {given.seed}:")
    print(", ".join(f"{name} {verdicts[name]}" for name in ("right", "named", "wrong", "none")))
    sizes = sorted(len(list(outcome.inference.stacks())) for outcome in outcomes if outcome.verdict == "named")
    if sizes:
        print(f"stacks in a named set: median {sizes[len(sizes) // 2]}, at most {sizes[-1]}")
    for outcome in outcomes:
        if outcome.verdict in ("wrong", "none"):
            print(outcome.verdict, "true:", stack_name(plain_form(outcome.stack)))
    print(f"{perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
