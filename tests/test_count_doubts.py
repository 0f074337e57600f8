"""What speaks against a reading that fits, each doubt alone, on choices built by hand."""

from dataclasses import replace

import pytest

from kimi_helpers.count_doubts import FEW_REPLIES, doubt, lost_bytes
from kimi_helpers.formats import Special
from kimi_helpers.profiles import ProviderProfile
from kimi_helpers.reading_search import Choices, Reading, packed
from kimi_helpers.readings import Layout, Slot
from kimi_helpers.replies import Reply, ToolCall, Usage
from kimi_helpers.serving_stacks import known_stacks
from kimi_helpers.vocabulary import Vocabulary

HELLO = [22931, 2695]  # "hello world"
END = 163586
PROFILE = ProviderProfile("P", (known_stacks()["faithful"],), 40, "calibrated")
REPLY = Reply(
    None,
    None,
    "hello world",
    (),
    "stop",
    (),
    Usage(9, 3, None, None, None),
    "P",
    "m",
    "g",
    None,
    None,
    None,
    "json",
    (),
)
LAYOUT = Layout((Slot("content", ("hello world",)), Special("<|im_end|>")), "counted")
CHOICES = Choices(((packed(HELLO),), (packed([END]),)), LAYOUT)
READING = Reading(packed([*HELLO, END]), 3, "counted")


def doubted(kimi: Vocabulary, **changed: object) -> str:
    given: dict[str, object] = {"of_best": CHOICES, "reply": REPLY, "profile": PROFILE, "fitting": [READING]} | changed
    tried = given.pop("tried", [given["of_best"]])
    return doubt(tried=tried, billed=3, vocabulary=kimi, **given)  # type: ignore[arg-type]


def test_a_plain_reading_under_a_good_profile_has_none(kimi: Vocabulary) -> None:
    assert doubted(kimi) == ""
    assert doubted(kimi, profile=replace(PROFILE, replies=None)) == ""


def test_several_readings(kimi: Vocabulary) -> None:
    other = Reading(packed([22931, 5, END]), 3, "counted")
    assert doubted(kimi, fitting=[READING, other]).startswith(
        "so do 1 other readings, the next of which differs from token 1"
    )


def test_a_cut_reply_with_a_shorter_reading(kimi: Vocabulary) -> None:
    cut = replace(REPLY, finish_reason="length")
    shorter = Choices((((packed(HELLO)),),), Layout((Slot("content", ("hello world",)),), "absent"))
    assert "was cut" in doubted(kimi, reply=cut, tried=[CHOICES, shorter])
    assert doubted(kimi, reply=cut) == ""


@pytest.mark.parametrize("text", ["a\ufffd", "\ud83d"])
def test_lost_bytes(kimi: Vocabulary, text: str) -> None:
    assert "bytes that are lost" in doubted(kimi, reply=replace(REPLY, content=text))
    assert lost_bytes(replace(REPLY, tool_calls=(ToolCall("functions.f:0", "f", text),)))
    assert lost_bytes(REPLY) == ""


def test_half_a_character_that_a_host_may_have_dropped(kimi: Vocabulary) -> None:
    """17137 is a blank with the first two bytes of an emoji, so a blank at the end may be what is left of it."""
    assert kimi.token_bytes(17137) == b" \xf0\x9f"
    cut = Reading(packed([*HELLO, 220]), 3, "absent")
    assert kimi.token_bytes(220) == b" "
    assert "bytes were dropped" in doubted(kimi, fitting=[cut])
    shows = replace(known_stacks()["faithful"], shows_half_characters=True)
    assert doubted(kimi, fitting=[cut], profile=replace(PROFILE, stacks=(shows,))) == ""
    assert "bytes were dropped" in doubted(
        kimi, fitting=[cut], profile=replace(PROFILE, stacks=(shows, *PROFILE.stacks))
    )


def test_an_unusual_layout(kimi: Vocabulary) -> None:
    assert "left the law" in doubted(kimi, of_best=replace(CHOICES, layout=replace(LAYOUT, usual=False)))


@pytest.mark.parametrize(("shorter", "is_doubt"), [(1, True), (2, True), (3, False)])
def test_a_shorter_reading_that_a_longer_split_would_stretch(kimi: Vocabulary, shorter: int, is_doubt: bool) -> None:
    """A model that splits a word otherwise makes a reply one or two tokens longer."""
    texts = (packed([1, 2, 3, 4]), packed([1, 2, 3, 4][: 4 - shorter]))
    layout = Layout((Slot("content", ("long", "short")), Special("<|im_end|>")), "counted")
    best = Reading(packed([1, 2, 3, 4, END]), 5, "counted")
    told = doubt([best], Choices((texts, (packed([END]),)), layout), [], REPLY, 5, PROFILE, kimi)
    assert ("split into more tokens" in told) == is_doubt


def test_sources_that_were_not_tried(kimi: Vocabulary) -> None:
    part = Slot("content", ("hello world",), complete=False)
    layout = replace(LAYOUT, parts=(part, Special("<|im_end|>")))
    assert "more than were tried" in doubted(kimi, of_best=replace(CHOICES, layout=layout))


def test_a_weak_profile(kimi: Vocabulary) -> None:
    assert "no profile" in doubted(kimi, profile=None)
    assert f"only {FEW_REPLIES - 1} replies" in doubted(kimi, profile=replace(PROFILE, replies=FEW_REPLIES - 1))
    assert doubted(kimi, profile=replace(PROFILE, replies=FEW_REPLIES)) == ""
