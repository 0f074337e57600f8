"""What speaks against calling a reading exact although it makes the billed count."""

from collections.abc import Sequence
from functools import cache
from itertools import zip_longest

from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reading_search import MOST_READINGS, Choices, Reading
from kimi_helpers.replies import Reply
from kimi_helpers.vocabulary import Vocabulary

FEW_REPLIES = 10
LOST_BYTES = "\ufffd"

LEFT_THE_LAW = "it fits only if the model left the law, and a usual reading of another length is likelier"

# A model that splits one word otherwise than the tokenizer makes its reply one or two tokens longer.
SPLIT_TOKENS = (1, 2)


def doubt(
    fitting: Sequence[Reading],
    of_best: Choices,
    tried: Sequence[Choices],
    reply: Reply,
    billed: int,
    profile: ProviderProfile | None,
    vocabulary: Vocabulary,
) -> str:
    """The gravest doubt about the best fitting reading, as half a sentence; empty where there is none.

    Args:
        fitting: the distinct readings that make the count, best first.
        of_best: the choices that the best one comes from.
        tried: all choices that were tried.
        reply: with its text as returned.
        billed: its count.
        profile: of its host.
        vocabulary: whose ids.
    """
    return (
        _several(fitting)
        or _cut_short(reply, tried, billed)
        or lost_bytes(reply)
        or _hidden_bytes(fitting[0], profile, vocabulary)
        or _unusual(of_best)
        or _split_otherwise(of_best, billed)
        or _untried(tried)
        or weak_profile(profile)
    )


def _several(fitting: Sequence[Reading]) -> str:
    if len(fitting) == 1:
        return ""
    first, second = (reading.token_ids.tolist() for reading in fitting[:2])
    place = next(place for place, ids in enumerate(zip_longest(first, second)) if ids[0] != ids[1])
    more = "or more " if len(fitting) >= MOST_READINGS else ""
    return f"so do {len(fitting) - 1} {more}other readings, the next of which differs from token {place} on"


def _cut_short(reply: Reply, tried: Sequence[Choices], billed: int) -> str:
    """Hosts drop half a character, and a call that is not complete."""
    if reply.finish_reason != "length" or all(choices.fewest() >= billed for choices in tried):
        return ""
    return "the reply was cut, and a shorter reading leaves room for tokens whose text was dropped"


def lost_bytes(reply: Reply) -> str:
    """Whether the text holds a sign of bytes that could not be shown."""
    texts = [reply.reasoning or "", reply.content or ""]
    texts += [text for call in reply.tool_calls for text in (call.id, call.arguments)]
    if any(map(_lacks_bytes, texts)):
        return "the text holds U+FFFD or half a surrogate pair, which stand for bytes that are lost"
    return ""


def _lacks_bytes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return True
    return LOST_BYTES in text


def _hidden_bytes(cut: Reading, profile: ProviderProfile | None, vocabulary: Vocabulary) -> str:
    """Whether the last token of a cut reply may be another, which ends inside a character that the host dropped."""
    if profile and all(stack.shows_half_characters for stack in profile.stacks):
        return ""
    if cut.end_token == "absent" and vocabulary.token_bytes(int(cut.token_ids[-1])) in _openings(vocabulary):
        return "the reply was cut, and its last token may have begun a character whose bytes were dropped"
    return ""


@cache
def _openings(vocabulary: Vocabulary) -> frozenset[bytes]:
    """The whole characters, at least one, with which a token begins that ends inside a character."""
    openings = set()
    for id in vocabulary.ordinary_ids:
        token = vocabulary.token_bytes(id)
        try:
            token.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data" and error.start:
                openings.add(token[: error.start])
    return frozenset(openings)


def _unusual(of_best: Choices) -> str:
    if of_best.layout.usual:
        return ""
    return LEFT_THE_LAW


def _split_otherwise(of_best: Choices, billed: int) -> str:
    """Whether a shorter reading of the same layout, split into more tokens, makes the count too."""
    if any(of_best.makes(billed - more) for more in SPLIT_TOKENS):
        return "a shorter reading, split into more tokens than the tokenizer's, makes it too"
    return ""


def _untried(tried: Sequence[Choices]) -> str:
    """Whether the stack can have made the reply of texts that were not tried."""
    if all(choices.layout.complete for choices in tried):
        return ""
    return "the host changes text, and a text of this length can have been changed from more than were tried"


def weak_profile(profile: ProviderProfile | None) -> str:
    """Why what is known of a host proves nothing of a single reply; empty where it does."""
    if profile is None:
        return "no profile says that the host leaves text unchanged"
    if profile.replies is not None and profile.replies < FEW_REPLIES:
        return f"the profile of {profile.provider} rests on only {profile.replies} replies"
    return ""
