"""Ids and bytes that hosts return, on layouts built by hand."""

import pytest

from kimi_helpers.formats import Special
from kimi_helpers.reading_search import Choices, packed
from kimi_helpers.readings import Layout, Slot
from kimi_helpers.replies import Reply, TokenLogprob, Usage
from kimi_helpers.token_evidence import completed_ids, covers_all, listed_ids, with_content
from kimi_helpers.vocabulary import Vocabulary

HELLO = [22931, 2695]  # "hello world"
END, END_THINK = 163586, 163607
ANSWER = Layout((Slot("content", ("hello world", " hello world")), Special("<|im_end|>")), "counted")
THOUGHT = Layout((Slot("reasoning", ("",)), Special("</think>"), *ANSWER.parts), "counted")
CUT = Layout((Slot("content", ("hello world",)),), "absent")


def reply(*listed: bytes | None, billed: int | None = None) -> Reply:
    logprobs = tuple(TokenLogprob("", -0.1, data) for data in listed) or None
    usage = None if billed is None else Usage(9, billed, None, None, None)
    return Reply(None, None, "hello world", (), "stop", (), usage, "P", "m", "g", logprobs, None, None, "json", ())


@pytest.mark.parametrize(
    ("ids", "layouts", "complete"),
    [
        ([*HELLO, END], [ANSWER], [*HELLO, END]),
        (HELLO, [ANSWER], [*HELLO, END]),
        (HELLO, [CUT], HELLO),
        ([END_THINK, *HELLO], [ANSWER, THOUGHT], [END_THINK, *HELLO, END]),
        ([104, 1319, 2695], [CUT], None),
        ([*HELLO, END, END], [ANSWER], None),
        ([], [ANSWER], None),
    ],
)
def test_ids_are_taken_where_they_spell_a_layout(
    kimi: Vocabulary, ids: list[int], layouts: list[Layout], complete: list[int] | None
) -> None:
    assert completed_ids(ids, layouts, kimi) == complete


def test_another_split_of_the_same_text_is_the_engine_s_word(kimi: Vocabulary) -> None:
    split = [kimi.id_of_bytes(piece) for piece in (b"hel", b"lo", b" world")]
    assert None not in split
    assert completed_ids([id for id in split if id is not None], [CUT], kimi) == split


def test_an_id_outside_the_vocabulary_raises(kimi: Vocabulary) -> None:
    with pytest.raises(ValueError, match="999999"):
        completed_ids([999_999], [ANSWER], kimi)


def test_listed_ids_need_the_bytes_of_every_token(kimi: Vocabulary) -> None:
    assert listed_ids(reply(b"hello", b" world", b"<|im_end|>"), kimi) == [*HELLO, END]
    assert listed_ids(reply(b"hello", None), kimi) == []
    assert listed_ids(reply(b"no token has these bytes"), kimi) == []
    assert listed_ids(reply(), kimi) == []


def test_a_list_of_the_content_alone_does_not_cover_a_reply_that_may_have_thought(kimi: Vocabulary) -> None:
    assert covers_all([*HELLO, END], reply(billed=3), [ANSWER], kimi)
    assert not covers_all([*HELLO, END], reply(billed=3), [ANSWER, THOUGHT], kimi)
    assert covers_all([END_THINK, *HELLO, END], reply(billed=4), [ANSWER, THOUGHT], kimi)
    assert covers_all([*HELLO, END], reply(billed=2), [ANSWER], kimi)  # the end not counted
    assert not covers_all([*HELLO, END], reply(billed=4), [ANSWER], kimi)
    assert covers_all([*HELLO, END], reply(), [ANSWER], kimi)


def test_listed_ids_of_the_content_take_its_place(kimi: Vocabulary) -> None:
    choices = Choices(((packed(HELLO), packed([7, 8, 9])), (packed([END]),)), ANSWER)
    known = with_content(choices, [*HELLO, END], kimi)
    assert known is not None
    assert known.parts == ((packed(HELLO),), (packed([END]),))
    assert with_content(choices, HELLO[:1], kimi) is None
    assert with_content(choices, [], kimi) is None
