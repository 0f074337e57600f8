"""The simulated hosts: what each does to the text and the count of one and the same completion.

A host is a row of `HOSTS`: one function for each step of its serving stack (`serving_stack`, `call_rewriting`), what
it counts, what else it tells, and prices. `answers` runs a completion through a row. The real hosts that rows follow
are those of replies recorded between October 2025 and October 2026; hosts change.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from kimi_helpers.simulator import call_rewriting, serving_stack
from kimi_helpers.simulator.serving_stack import Pieces, ToolCall
from kimi_helpers.simulator.token_evidence import EvidenceKind
from kimi_helpers.vocabulary import Vocabulary

Cut = Callable[[Pieces], tuple[Pieces, Pieces]]
Trim = Callable[[Pieces], Pieces]


@dataclass(frozen=True)
class Host:
    """A simulated host.

    Attributes:
        slug: its name in a request's `provider.only`; it stands for all its endpoints.
        name: the display name in `provider` of a reply.
        follows: which real host or server it is built after.
        decode: token ids, without the end token, to pieces of text.
        cut_reasoning: pieces to pieces of reasoning and the rest.
        cut_streamed_reasoning: the same for a stream, where that differs.
        cut_tools: the rest to content and tool calls.
        trim_reasoning: what is done to the text of the reasoning.
        trim_content: what is done to the text of the content.
        write_arguments: what is done to the arguments of a call.
        write_id: what is done to the id of a call.
        reasoning_field: where a message carries the reasoning.
        counts_end: whether `completion_tokens` counts the end token.
        counts_forced_prefix: whether it counts what a forced `tool_choice` puts before the arguments.
        estimates_reasoning: whether `reasoning_tokens` is guessed from the length of the text.
        system_prompt: the system message that a conversation without one gets.
        evidence: what it tells of the sampled tokens where a request asks for it.
        prompt_price: dollars per prompt token, a decimal in a string as the listing has it.
        completion_price: dollars per completion token.
        quantization: as the endpoint listing calls it.
    """

    slug: str
    name: str
    follows: str = ""
    decode: Callable[[Vocabulary, Sequence[int]], Pieces] = serving_stack.decode_faithfully
    cut_reasoning: Cut = serving_stack.cut_reasoning
    cut_streamed_reasoning: Cut | None = None
    cut_tools: Callable[[Pieces], tuple[Pieces, tuple[ToolCall, ...]]] = serving_stack.cut_tool_section
    trim_reasoning: Trim = serving_stack.keep
    trim_content: Trim = serving_stack.keep
    write_arguments: Trim = serving_stack.keep
    write_id: call_rewriting.IdRule = call_rewriting.keep_id
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"
    counts_end: bool = True
    counts_forced_prefix: bool = True
    estimates_reasoning: bool = False
    system_prompt: str | None = None
    evidence: EvidenceKind | None = None
    prompt_price: str = "0.00000044"
    completion_price: str = "0.000002"
    quantization: str = "int4"

    @property
    def tag(self) -> str:
        """The full slug of its endpoint, e.g. `faithful/int4`."""
        return f"{self.slug}/{self.quantization}"


HOSTS = (
    Host("faithful", "Loopback Faithful", "Chutes with K2.5: nothing is changed, and the end token is counted."),
    Host(
        "blanks",
        "Loopback Blanks",
        "Venice with K2.6: the detokeniser of vllm-project/vllm#33457 puts a blank on each side of every added token.",
        decode=serving_stack.decode_with_blanks,
        completion_price="0.0000022",
    ),
    Host(
        "reasoning-content",
        "Loopback Reasoning Content",
        "A server whose field name the gateway leaves as it is, as Moonshot's own API.",
        reasoning_field="reasoning_content",
        prompt_price="0.0000005",
    ),
    Host(
        "think-in-content",
        "Loopback Think In Content",
        "A server started without a reasoning parser, as Bedrock shows in a second turn of K2-Thinking.",
        cut_reasoning=serving_stack.leave_reasoning,
        prompt_price="0.00000039",
    ),
    Host(
        "end-not-counted",
        "Loopback End Not Counted",
        "DeepInfra with K2: nothing is changed, and the end token is not counted.",
        counts_end=False,
        completion_price="0.00000225",
    ),
    Host(
        "stripped",
        "Loopback Stripped",
        "A gateway that strips both texts of every reply (the matter of smg-project/smg#1658).",
        trim_reasoning=serving_stack.strip,
        trim_content=serving_stack.strip,
        prompt_price="0.00000055",
    ),
    Host(
        "compact-arguments",
        "Loopback Compact Arguments",
        "Groq with K2: arguments are written anew without blanks.",
        write_arguments=call_rewriting.write_compact,
        prompt_price="0.000001",
    ),
    Host(
        "spaced-arguments",
        "Loopback Spaced Arguments",
        "A gateway in Python that parses arguments and writes them by default, as Avian seems to.",
        write_arguments=call_rewriting.write_spaced,
    ),
    Host(
        "call-ids",
        "Loopback Call Ids",
        "Together with K2: ids replaced, arguments compact, the end counted, a default system prompt (9 tokens).",
        write_arguments=call_rewriting.write_compact,
        write_id=call_rewriting.call_id,
        system_prompt="You are a helpful assistant",
        prompt_price="0.000001",
        completion_price="0.000003",
    ),
    Host(
        "bare-ids",
        "Loopback Bare Ids",
        "Moonshot's own API with K2: ids lose `functions.`, and no system prompt is added.",
        write_id=call_rewriting.bare_id,
        prompt_price="0.0000006",
        completion_price="0.0000025",
    ),
    Host(
        "hex-ids",
        "Loopback Hex Ids",
        "SiliconFlow with K2: hexadecimal ids, the end not counted, a default system prompt (18 tokens).",
        write_id=call_rewriting.hex_id,
        counts_end=False,
        system_prompt="You are Kimi, an AI assistant created by Moonshot AI.",
        prompt_price="0.00000058",
    ),
    Host(
        "leaky-tools",
        "Loopback Leaky Tools",
        "A server started without a tool parser (sgl-project/sglang#21377): markup in the content, finished by stop.",
        cut_tools=serving_stack.leave_tools,
    ),
    Host(
        "short-forced",
        "Loopback Short Forced",
        "AtlasCloud and SiliconFlow with K2, which count a forced call short (26 of 33, 16 of 39): what was forced is"
        " not counted.",
        counts_forced_prefix=False,
    ),
    Host(
        "avian-like",
        "Loopback Avian Like",
        "Avian with K2.5: blanks around added tokens, the front of the reasoning stripped, two blanks as content before"
        " a call, arguments written anew with blanks, the end not counted, `reasoning_tokens` off by some.",
        decode=serving_stack.decode_with_blanks,
        cut_tools=serving_stack.cut_at_first_call,
        trim_reasoning=serving_stack.strip_left,
        write_arguments=call_rewriting.write_spaced,
        counts_end=False,
        estimates_reasoning=True,
        reasoning_field="reasoning_content",
    ),
    Host(
        "sglang-old",
        "Loopback SGLang Old",
        "SGLang before sgl-project/sglang#24251 (May 2026): stream and whole reply are stripped by different rules.",
        cut_reasoning=serving_stack.cut_reasoning_stripped,
        cut_streamed_reasoning=serving_stack.cut_reasoning_right_stripped,
    ),
    Host(
        "trimmed-arguments",
        "Loopback Trimmed Arguments",
        "vLLM before vllm-project/vllm#38579 with the detokeniser of #33457: the tool parser trims ids and arguments,"
        " and reasoning and content keep their blanks.",
        decode=serving_stack.decode_with_blanks,
        write_arguments=serving_stack.strip,
    ),
    Host(
        "returns-ids",
        "Loopback Returns Ids",
        "vLLM: `return_token_ids` in the request brings the ids of the prompt and of the reply.",
        evidence="ids",
    ),
    Host(
        "returns-bytes",
        "Loopback Returns Bytes",
        "vLLM: `logprobs` in the request brings an entry with bytes for every sampled token, special ones too.",
        evidence="bytes",
    ),
    Host(
        "returns-content-bytes",
        "Loopback Returns Content Bytes",
        "A server that keeps to OpenAI's schema: `logprobs` brings entries for the tokens of the content alone.",
        evidence="content bytes",
    ),
)


def cost(host: Host, prompt_tokens: int, completion_tokens: int) -> tuple[Decimal, Decimal]:
    """Dollars for the prompt and for the completion."""
    return Decimal(host.prompt_price) * prompt_tokens, Decimal(host.completion_price) * completion_tokens


def allowed_hosts(only: Collection[str]) -> list[Host]:
    """The hosts that a request's `provider.only` allows, in its order; a base slug stands for all its endpoints."""
    return [host for slug in only for host in HOSTS if slug.lower() in (host.slug, host.tag)]
