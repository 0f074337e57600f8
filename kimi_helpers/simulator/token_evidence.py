"""What an engine tells of the sampled tokens beside their text: their ids, or the bytes of each.

vLLM's `return_token_ids` puts `token_ids` into each choice and the ids of the prompt at the top of the body; its
`logprobs` lists every sampled token, reasoning, special tokens and the end token included. In a stream each chunk
tells of the tokens that came since the last one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kimi_helpers.formats import BEGIN_ARGUMENTS, BEGIN_CALL, BEGIN_SECTION, END_THINK
from kimi_helpers.simulator.serving_stack import decode_faithfully, token_bytes
from kimi_helpers.vocabulary import Vocabulary

EvidenceKind = Literal["ids", "bytes", "content bytes"]


@dataclass(frozen=True)
class Evidence:
    """What a reply tells of its tokens.

    Attributes:
        kind: ids, the bytes of every token, or the bytes of the content's tokens.
        prompt_ids: token ids of the prompt.
        token_ids: the sampled ids, shape [n].
        widths: how many characters each token adds to a text of the reply, shape [n]; 0 for special tokens, tool ids,
            and tokens that do not complete a character.
        entries: the entry of each token in `logprobs.content`, shape [n]; None where it has none.
    """

    kind: EvidenceKind
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    widths: tuple[int, ...]
    entries: tuple[dict[str, Any] | None, ...]

    def choice_fields(self, start: int, end: int) -> dict[str, Any]:
        """What a choice says of the tokens `start` to `end`."""
        if self.kind == "ids":
            return {"token_ids": self.token_ids[start:end]}
        return {"logprobs": {"content": [entry for entry in self.entries[start:end] if entry]}}

    def body_fields(self) -> dict[str, Any]:
        """What the body, in a stream its first chunk, says of the prompt."""
        return {"prompt_token_ids": self.prompt_ids} if self.kind == "ids" else {}

    def chunks(self, texts: Iterable[str | None]) -> Iterator[tuple[int, int]]:
        """The range of tokens that belongs to each delta of a stream.

        Args:
            texts: what each delta adds to a text of the reply; None where it opens a tool call. What no delta takes
                is left for the chunk with the finish reason.
        """
        place = 0
        for text in texts:
            start, rest = place, len(text or "")
            while place < len(self.widths) and (rest > 0 or (text is None and self.widths[place] == 0)):
                rest -= self.widths[place]
                place += 1
            yield start, place


def evidence_of(
    kind: EvidenceKind, vocabulary: Vocabulary, prompt_ids: Sequence[int], token_ids: Sequence[int], thinking: bool
) -> Evidence:
    """The evidence of one reply.

    Args:
        kind: what is told.
        vocabulary: whose ids.
        prompt_ids: token ids of the prompt.
        token_ids: the sampled ids, shape [n].
        thinking: whether the reply begins with reasoning.
    """
    widths, is_content = [], []
    where = "reasoning" if thinking else "content"
    borders = {
        vocabulary.special_id(END_THINK): "content",
        vocabulary.special_id(BEGIN_SECTION): "tools",
        vocabulary.special_id(BEGIN_CALL): "tool id",
        vocabulary.special_id(BEGIN_ARGUMENTS): "tools",
    }
    for id, piece in zip(token_ids, decode_faithfully(vocabulary, token_ids), strict=False):
        where = borders.get(id, where)
        special = id in vocabulary.special_ids
        widths.append(0 if special or where == "tool id" else len(piece))
        is_content.append(where == "content" and not special)
    entries = (
        _entry(vocabulary, id) if kind == "bytes" or (kind == "content bytes" and inside) else None
        for id, inside in zip(token_ids, is_content, strict=True)
    )
    return Evidence(kind, tuple(prompt_ids), tuple(token_ids), tuple(widths), tuple(entries))


def _entry(vocabulary: Vocabulary, id: int) -> dict[str, Any]:
    """An entry of `logprobs.content`. The scripted model has no probabilities: the number only varies by token."""
    data = token_bytes(vocabulary, id)
    logprob = -(id % 997) / 499
    return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data), "top_logprobs": []}
