"""Runs against a server with faults: nothing lost, nothing doubled, nothing wrong marked good."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response, StreamingResponse

from kimi_helpers.generation import RunStopped, Summary, generate
from kimi_helpers.journal import Exchange, read_journal
from kimi_helpers.openrouter import open_client
from kimi_helpers.replies import Reply, parse_reply
from tests.loopback import Answer, Seen, error, events, listed, serve, stream
from tests.test_generation import QUICK, SETTINGS, greet, prompts, run, text_of

PATIENCE = 0.3  # of the client, in seconds


def impatient_run(answer: Answer, texts: list[str], journal: Path, **options: Any) -> tuple[Summary, Seen]:
    """A run whose client waits `PATIENCE` for each read."""

    async def main(base_url: str) -> Summary:
        async with open_client(base_url) as client:
            client.timeout = httpx.Timeout(PATIENCE)
            return await generate(prompts(*texts), ["loop"], SETTINGS, journal, client, retries=QUICK, **options)

    with serve(answer, [listed("loop")]) as (base_url, seen):
        return asyncio.run(main(base_url)), seen


def paced(pieces: list[bytes], before: float, at: int = 0) -> Response:
    """A stream that is silent for some seconds before the piece `at`."""

    async def body() -> AsyncIterator[bytes]:
        for place, piece in enumerate(pieces):
            if place == at:
                await asyncio.sleep(before)
            yield piece

    return StreamingResponse(body(), media_type="text/event-stream")


def first_then_greet(failing: Response) -> Answer:
    async def answer(fields: dict[str, Any], before: int) -> Response:
        return await greet(fields, before) if before else failing

    return answer


def always(response: bytes | Response) -> Answer:
    async def answer(_: dict[str, Any], __: int) -> Response:
        return response if isinstance(response, Response) else Response(response, media_type="text/event-stream")

    return answer


def content_of(exchange: Exchange) -> str | None:
    outcome = parse_reply(exchange.transfer.body, status=exchange.transfer.status)
    assert isinstance(outcome, Reply)
    return outcome.content


def test_an_account_that_runs_empty_stops_the_run_and_loses_nothing(tmp_path: Path) -> None:
    texts, paid, answered = [f"p{n}" for n in range(12)], 5, 0

    async def answer(fields: dict[str, Any], before: int) -> Response:
        nonlocal answered
        answered += 1
        return await greet(fields, before) if answered <= paid else error(402, "Insufficient credits")

    journal = tmp_path / "j.sqlite"
    with pytest.raises(RunStopped, match=r"after 5 replies: the credits are used up: add some"):
        run(answer, prompts(*texts), journal, concurrency=3)
    rows = list(read_journal(journal))
    good = [each.prompt_id for each in rows if each.failure is None]
    assert len(good) == len(set(good)) == paid
    assert {each.failure for each in rows} == {None, "http_error"}
    assert len(rows) == answered <= paid + 3  # those on their way together, and no more
    summary, asked_again = run(greet, prompts(*texts), journal)
    assert Counter(asked_again) == Counter(set(texts) - set(good))
    assert (summary.already_finished, summary.finished) == (5, 7)
    assert sorted(each.prompt_id for each in read_journal(journal) if each.failure is None) == sorted(texts)


def test_a_slow_first_byte_is_waited_for(tmp_path: Path) -> None:
    slow = PATIENCE / 2
    summary, seen = impatient_run(always(paced(events("Hello"), slow)), ["a"], tmp_path / "j.sqlite")
    (row,) = read_journal(tmp_path / "j.sqlite")
    assert (summary.finished, seen.texts(), row.failure, content_of(row)) == (1, ["a"], None, "Hello")
    assert row.transfer.chunks[0][1] >= slow * 1e6


@pytest.mark.parametrize("at", [0, 3])
def test_silence_is_a_failure_that_keeps_what_came_and_is_tried_again(tmp_path: Path, at: int) -> None:
    pieces = events("Hello")
    silent = paced(pieces, 4 * PATIENCE, at)
    summary, seen = impatient_run(first_then_greet(silent), ["a"], tmp_path / "j.sqlite")
    first, second = read_journal(tmp_path / "j.sqlite")
    assert (first.failure, second.failure) == ("transport_error", None)
    assert first.transfer.body == b"".join(pieces[:at])
    assert first.transfer.transport_error == "ReadTimeout"
    assert (summary.asked, summary.finished, seen.texts()) == (2, 1, ["a", "a"])


WHOLE = b"".join(events("Hello"))
EMPTY = b"".join(events("")).replace(b'"reasoning": "Hm."', b'"reasoning": null')


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (WHOLE.replace(b'"Hello"', b'"Hello'), "malformed"),
        (WHOLE.replace(b"Hello", b"Hel\xfflo"), "malformed"),
        (WHOLE.replace(b"Hello", "Hé".encode()[:2]), "malformed"),  # half a character within an event
        (b"<html>busy</html>", "malformed"),
        (b'{"ok": true}', "not_chat_completion"),
        (b"", "malformed"),
        (EMPTY, "empty"),
        (b"".join(events("")), "empty_answer"),
    ],
)
def test_what_is_no_reply_is_kept_and_not_marked_good(tmp_path: Path, body: bytes, kind: str) -> None:
    journal = tmp_path / "j.sqlite"
    summary, texts = run(always(body), prompts("a"), journal)
    rows = list(read_journal(journal))
    assert {each.failure for each in rows} == {kind}
    assert {each.transfer.body for each in rows} == {body}
    assert (summary.finished, summary.failed, len(texts)) == (0, {kind: 1}, len(rows))
    summary, _ = run(greet, prompts("a"), journal)
    assert (summary.already_finished, summary.finished) == (0, 1)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c"])
def test_a_separator_within_an_event_does_not_split_it(tmp_path: Path, separator: str) -> None:
    text = f"left{separator}right"
    body = b"".join(events("TEXT")).replace(b"TEXT", text.encode())
    if separator < " ":  # JSON writes these as escapes
        body = b"".join(events("TEXT")).replace(b"TEXT", f"left\\u{ord(separator):04x}right".encode())
    run(always(body), prompts("a"), tmp_path / "j.sqlite")
    (row,) = read_journal(tmp_path / "j.sqlite")
    assert (row.failure, row.transfer.body, content_of(row)) == (None, body, text)


def test_half_a_character_at_a_chunk_border_is_made_whole(tmp_path: Path) -> None:
    text = "挑衅"
    body = b"".join(events(text))
    border = body.index(text.encode()) + 1
    answer = always(paced([body[:border], body[border:]], 0.1, 1))
    run(answer, prompts("a"), tmp_path / "j.sqlite")
    (row,) = read_journal(tmp_path / "j.sqlite")
    assert border in [end for end, _ in row.transfer.chunks]
    assert (row.failure, row.transfer.body, content_of(row)) == (None, body, text)


def test_a_connection_cut_within_a_character_is_tried_again(tmp_path: Path) -> None:
    text = "挑衅"
    body = b"".join(events(text))
    cut = stream([body[: body.index(text.encode()) + 1]], breaks=True)
    run(first_then_greet(cut), prompts("a"), tmp_path / "j.sqlite")
    first, second = read_journal(tmp_path / "j.sqlite")
    assert (first.failure, second.failure, content_of(second)) == ("transport_error", None, "Hello, a")
    assert first.transfer.body.endswith("挑".encode()[:1])


def test_a_storm_of_faults_ends_in_one_right_reply_a_prompt(tmp_path: Path) -> None:
    """Each prompt meets faults drawn by lot; runs go on until all is answered."""
    rng = random.Random(11)
    texts = [f"p{n}\u2028{n}" for n in range(60)]

    def failing(text: str) -> Response:
        whole = b"".join(events(f"Hello, {text}"))
        return rng.choice(
            [
                error(500),
                error(429),
                error(404),
                Response('{"error":{"code":502,"message":"no"}}'),
                Response(whole[: rng.randrange(len(whole) - 20)], media_type="text/event-stream"),
                Response(whole.replace(b"Loopback", b"Other"), media_type="text/event-stream"),
                Response(whole.replace(b"Hello", b"Hel\xff"), media_type="text/event-stream"),
                Response(EMPTY, media_type="text/event-stream"),
                stream(events(f"Hello, {text}")[:3], breaks=True),
            ]
        )

    async def answer(fields: dict[str, Any], before: int) -> Response:
        text = text_of(fields)
        return failing(text) if rng.random() < 0.4 else await greet(fields, before)

    journal = tmp_path / "j.sqlite"
    sent = 0
    for _ in range(12):
        summary, seen = run(answer, prompts(*texts), journal, retries=replace(QUICK, first_wait=0.001))
        sent += len(seen)
        assert summary.asked == len(seen)
        if summary.already_finished + summary.finished == len(texts):
            break
    rows = list(read_journal(journal))
    assert len(rows) == sent  # every exchange is kept, once
    good = {each.prompt_id: content_of(each) for each in rows if each.failure is None}
    assert len([each for each in rows if each.failure is None]) == len(texts)
    assert good == {text: f"Hello, {text}" for text in texts}
