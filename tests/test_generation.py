"""Tests of generation, against a server on this machine."""

import asyncio
import json
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from kimi_helpers.generation import Limits, Retries, RunStopped, Settings, Summary, generate, run_generation
from kimi_helpers.journal import Exchange, Journal, JournalError, read_journal
from kimi_helpers.openrouter import OpenRouterError, open_client
from kimi_helpers.prompts import Prompt
from kimi_helpers.replies import Failure, FailureKind
from kimi_helpers.reply_sources import read_sources
from tests.loopback import Answer, Seen, error, events, free_port, listed, serve, stream

SECRET = "sk-or-v1-0123456789abcdef"
SETTINGS = Settings("greetings", "moonshotai/kimi-k2.5", max_tokens=100, temperature=1.0, top_p=0.95, seed=7)
QUICK = Retries(attempts=3, refusals=3, first_wait=0.01)


@contextmanager
def serve_listed(answer: Answer, **fields: Any) -> Iterator[tuple[str, Seen]]:
    """A server of an API whose model three endpoints serve."""
    with serve(answer, [listed(tag, **fields) for tag in ("loop", "x", "y")]) as served:
        yield served


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt(text, ({"role": "user", "content": text},), None, True) for text in texts]


def text_of(fields: dict[str, Any]) -> str:
    return str(fields["messages"][-1]["content"])


async def greet(fields: dict[str, Any], _: int) -> Response:
    return stream(events(f"Hello, {text_of(fields)}"))


def once(failing: Response) -> Answer:
    """The given response for a prompt's first request, a greeting for the next."""

    async def answer(fields: dict[str, Any], before: int) -> Response:
        return failing if before == 0 else await greet(fields, before)

    return answer


def run(answer: Answer, asked: list[Prompt], journal: Path, **options: Any) -> tuple[Summary, list[str]]:
    """A run against a server of its own: the summary, and the prompts that the server saw."""
    with serve_listed(answer) as (base_url, seen):
        summary = run_generation(
            asked, ["loop"], SETTINGS, journal, base_url=base_url, **({"retries": QUICK} | options)
        )
    return summary, seen.texts()


def test_every_reply_is_journaled_byte_for_byte(tmp_path: Path) -> None:
    sent = {text: b"".join(events(f"Hello, {text}")) for text in ("a", "b\u2028b", "挑衅")}
    summary, _ = run(greet, prompts(*sent), tmp_path / "j.sqlite")
    exchanges = list(read_journal(tmp_path / "j.sqlite"))
    assert {exchange.prompt_id: exchange.transfer.body for exchange in exchanges} == sent
    assert {exchange.failure for exchange in exchanges} == {None}
    assert {(each.dataset, each.provider, each.model, each.sample) for each in exchanges} == {
        ("greetings", "loop", "moonshotai/kimi-k2.5", 0)
    }
    assert all(json.loads(each.transfer.request)["provider"]["only"] == ["loop"] for each in exchanges)
    assert (summary.asked, summary.finished, summary.already_finished, summary.failed) == (3, 3, 0, {})
    assert (summary.prompt_tokens, summary.completion_tokens, summary.cost) == (30, 15, 0.75)


def test_providers_and_samples_are_asked_once_each(tmp_path: Path) -> None:
    with serve_listed(greet) as (base_url, seen):
        summary = run_generation(
            prompts("a", "b"), ["x", "y"], SETTINGS, tmp_path / "j.sqlite", base_url=base_url, samples=2, concurrency=1
        )
    requests = [json.loads(body) for body in seen.bodies]
    asked = [(text_of(body), body["provider"]["only"], body["seed"]) for body in requests]
    first = [("a", ["x"], 7), ("a", ["y"], 7), ("b", ["x"], 7), ("b", ["y"], 7)]
    assert asked == first + [(text, only, 8) for text, only, _ in first]
    assert summary.finished == 8
    assert Counter(exchange.sample for exchange in read_journal(tmp_path / "j.sqlite")) == {0: 4, 1: 4}


def test_what_is_finished_is_not_asked_again(tmp_path: Path) -> None:
    journal = tmp_path / "j.sqlite"
    run(greet, prompts("a", "b"), journal)
    summary, texts = run(greet, prompts("a", "b", "c"), journal)
    assert texts == ["c"]
    assert (summary.asked, summary.finished, summary.already_finished) == (1, 1, 2)
    summary, texts = run(greet, prompts("a", "b", "c"), journal)
    assert texts == []
    assert (summary.asked, summary.finished, summary.already_finished) == (0, 0, 3)


def test_a_prompt_that_stands_twice_is_asked_once(tmp_path: Path) -> None:
    summary, texts = run(greet, prompts("a", "a"), tmp_path / "j.sqlite")
    assert (texts, summary.finished) == (["a"], 1)


@pytest.mark.parametrize(
    ("failing", "kind"),
    [
        (error(500), "http_error"),
        (error(502, provider_name="Loop"), "http_error"),
        (error(429), "http_error"),
        (Response('{"error":{"code":502,"message":"no"}}'), "error_in_200"),
        (stream(events("Hello", end=False)), "stream_cut"),
    ],
)
def test_a_transient_failure_is_kept_and_tried_again(tmp_path: Path, failing: Response, kind: str) -> None:
    summary, texts = run(once(failing), prompts("a"), tmp_path / "j.sqlite")
    assert texts == ["a", "a"]
    assert (summary.asked, summary.finished, summary.failed) == (2, 1, {})
    first, second = read_journal(tmp_path / "j.sqlite")
    assert (first.failure, second.failure) == (kind, None)
    assert first.key == second.key


def test_a_connection_cut_in_mid_stream_is_kept_and_tried_again(tmp_path: Path) -> None:
    pieces = events("Hello")[:3]
    summary, _ = run(once(stream(pieces, breaks=True)), prompts("a"), tmp_path / "j.sqlite")
    first, second = read_journal(tmp_path / "j.sqlite")
    assert (first.failure, second.failure) == ("transport_error", None)
    assert first.transfer.body == b"".join(pieces)
    assert (summary.asked, summary.finished) == (2, 1)


def test_retry_after_is_heeded(tmp_path: Path) -> None:
    failing = error(429)
    failing.headers["Retry-After"] = "1"
    run(once(failing), prompts("a"), tmp_path / "j.sqlite")
    first, second = (datetime.fromisoformat(each.transfer.started) for each in read_journal(tmp_path / "j.sqlite"))
    assert (second - first).total_seconds() >= 1


def test_attempts_are_bounded_and_a_later_run_tries_again(tmp_path: Path) -> None:
    async def broken(fields: dict[str, Any], before: int) -> Response:
        return error(503) if text_of(fields) == "b" else await greet(fields, before)

    journal = tmp_path / "j.sqlite"
    summary, texts = run(broken, prompts("a", "b"), journal)
    assert Counter(texts) == {"a": 1, "b": 3}
    assert (summary.finished, summary.failed) == (1, {"http_error": 1})
    summary, texts = run(greet, prompts("a", "b"), journal)
    assert texts == ["b"]
    assert (summary.finished, summary.already_finished, summary.failed) == (1, 1, {})
    assert [each.failure for each in read_journal(journal) if each.prompt_id == "b"] == ["http_error"] * 3 + [None]


def test_a_lasting_failure_is_not_tried_again(tmp_path: Path) -> None:
    async def refuse(_: dict[str, Any], __: int) -> Response:
        return error(404, "No endpoints found")

    summary, texts = run(refuse, prompts("a", "b"), tmp_path / "j.sqlite")
    assert sorted(texts) == ["a", "b"]
    assert (summary.finished, summary.failed) == (0, {"http_error": 2})


def test_an_absent_server_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    base_url = f"http://127.0.0.1:{free_port()}/api/v1"
    with pytest.raises(OpenRouterError, match="cannot be reached"):
        run_generation(prompts("a", "b"), ["loop"], SETTINGS, tmp_path / "j.sqlite", base_url=base_url, retries=QUICK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "told"), [(401, "OPENROUTER_API_KEY"), (402, "credits"), (403, "forbids")])
def test_a_refusal_of_all_work_stops_the_run(tmp_path: Path, status: int, told: str) -> None:
    async def refuse(fields: dict[str, Any], before: int) -> Response:
        return error(status) if text_of(fields) == "b" else await greet(fields, before)

    journal = tmp_path / "j.sqlite"
    with pytest.raises(RunStopped, match=told) as caught:
        run(refuse, prompts("a", "b", "c", "d"), journal, concurrency=1)
    assert "stopped after 1 replies" in str(caught.value)
    assert str(journal) in str(caught.value)
    assert [(each.prompt_id, each.failure) for each in read_journal(journal)] == [("a", None), ("b", "http_error")]
    summary, texts = run(greet, prompts("a", "b", "c", "d"), journal)
    assert sorted(texts) == ["b", "c", "d"]
    assert summary.finished == 3


def test_a_stopped_run_keeps_what_is_on_its_way_and_waits_for_nothing_else(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def answer(fields: dict[str, Any], before: int) -> Response:
        text = text_of(fields)
        if text == "slow":
            await asyncio.sleep(0.3)
        if text == "limited":
            waiting.set()
            return Response('{"error":{"code":429,"message":"no"}}', 429, headers={"Retry-After": "100"})
        if text == "broke":
            await waiting.wait()
            return error(402)
        return await greet(fields, before)

    journal = tmp_path / "j.sqlite"
    with pytest.raises(RunStopped):
        run(answer, prompts("slow", "limited", "broke", "never"), journal, concurrency=3, retries=Retries())
    kept = {each.prompt_id: each.failure for each in read_journal(journal)}
    assert kept == {"slow": None, "limited": "http_error", "broke": "http_error"}


def test_a_prompt_refused_by_moderation_does_not_stop_the_run(tmp_path: Path) -> None:
    async def answer(fields: dict[str, Any], before: int) -> Response:
        return error(403, reasons=["violence"]) if text_of(fields) == "a" else await greet(fields, before)

    summary, texts = run(answer, prompts("a", "b"), tmp_path / "j.sqlite")
    assert sorted(texts) == ["a", "b"]
    assert (summary.finished, summary.failed) == (1, {"http_error": 1})


def test_concurrency_is_bounded(tmp_path: Path) -> None:
    open_now = 0
    most = 0

    async def answer(fields: dict[str, Any], before: int) -> Response:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.03)
        open_now -= 1
        return await greet(fields, before)

    summary, _ = run(answer, prompts(*"abcdefghi"), tmp_path / "j.sqlite", concurrency=3)
    assert summary.finished == 9
    assert most == 3


def hold_after(count: int, held: threading.Event) -> Answer:
    """Greets `count` prompts, then holds every request; `held` is set once one is held."""
    answered = 0

    async def answer(fields: dict[str, Any], before: int) -> Response:
        nonlocal answered
        if answered == count:
            held.set()
            await asyncio.sleep(60)
        answered += 1
        return await greet(fields, before)

    return answer


def test_a_cancelled_run_loses_no_finished_reply(tmp_path: Path) -> None:
    journal = tmp_path / "j.sqlite"
    held = threading.Event()

    async def main(base_url: str) -> None:
        async with open_client(base_url) as client:
            task = asyncio.create_task(
                generate(prompts(*"abcdef"), ["loop"], SETTINGS, journal, client, concurrency=1, retries=QUICK)
            )
            await asyncio.to_thread(held.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with serve_listed(hold_after(3, held)) as (base_url, _):
        asyncio.run(main(base_url))
    assert [(each.prompt_id, each.failure) for each in read_journal(journal)] == [("a", None), ("b", None), ("c", None)]
    summary, texts = run(greet, prompts(*"abcdef"), journal)
    assert sorted(texts) == ["d", "e", "f"]
    assert summary.already_finished == 3


def test_an_interrupt_ends_the_run_in_its_thread(tmp_path: Path) -> None:
    journal = tmp_path / "j.sqlite"
    held = threading.Event()
    main_thread = threading.main_thread().ident
    assert main_thread == threading.get_ident()

    def interrupt() -> None:
        held.wait(30)
        signal.pthread_kill(main_thread, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    threads = threading.active_count()
    with serve_listed(hold_after(2, held)) as (base_url, _):
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run_generation(prompts(*"abcd"), ["loop"], SETTINGS, journal, base_url=base_url, concurrency=1)
        interrupter.join()
    assert threading.active_count() == threads
    assert [each.prompt_id for each in read_journal(journal)] == ["a", "b"]


def test_a_run_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def cell(base_url: str) -> Summary:
        return run_generation(prompts("a"), ["loop"], SETTINGS, tmp_path / "j.sqlite", base_url=base_url)

    with serve_listed(greet) as (base_url, _):
        assert asyncio.run(cell(base_url)).finished == 1


def test_the_key_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    journal = tmp_path / "j.sqlite"

    async def answer(fields: dict[str, Any], before: int) -> Response:
        key = fields["headers"]["authorization"]
        return error(401, f"bad key: {key}") if text_of(fields) == "b" else stream(events(f"You sent {key}"))

    async def main(base_url: str) -> None:
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers) as client:
            await generate(prompts("a", "b"), ["loop"], SETTINGS, journal, client, concurrency=1)

    with serve_listed(answer) as (base_url, seen), pytest.raises(RunStopped) as caught:
        asyncio.run(main(base_url))
    assert [headers["authorization"] for headers in seen.headers] == [f"Bearer {SECRET}"] * 2
    assert SECRET not in f"{caught.value!r} {caught.value}"
    assert SECRET not in repr(list(read_journal(journal)))
    assert SECRET not in "".join(capfd.readouterr())
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_the_bar_counts_replies(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(greet, prompts("a", "b"), tmp_path / "j.sqlite")
    run(greet, prompts("a", "b", "c"), tmp_path / "j.sqlite")
    last = capfd.readouterr().err.strip().rsplit("\n", 1)[-1]
    assert last.startswith("greetings: 100%")
    assert "3/3" in last


def test_a_journal_of_other_settings_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    journal = tmp_path / "j.sqlite"
    run(greet, prompts("a"), journal)
    other = Settings("greetings", "moonshotai/kimi-k2.5", max_tokens=100, temperature=0.6, top_p=0.95, seed=7)
    with serve_listed(greet) as (base_url, seen):
        with pytest.raises(JournalError, match=r"temperature = 1\.0, now it is 0\.6"):
            run_generation(prompts("b"), ["loop"], other, journal, base_url=base_url)
        with pytest.raises(JournalError, match=r"host = '127\.0\.0\.1', now it is 'localhost'"):
            run_generation(
                prompts("b"), ["loop"], SETTINGS, journal, base_url=base_url.replace("127.0.0.1", "localhost")
            )
    assert seen.bodies == []


@pytest.mark.parametrize(
    ("providers", "options", "told"),
    [
        ([], {}, "No provider"),
        (["loop"], {"samples": 0}, "samples = 0"),
        (["loop"], {"concurrency": 0}, "concurrency = 0"),
    ],
)
def test_a_run_that_could_do_nothing_is_refused(
    tmp_path: Path, providers: list[str], options: dict[str, Any], told: str
) -> None:
    with pytest.raises((ValueError, OpenRouterError), match=told):
        run_generation(
            prompts("a"), providers, SETTINGS, tmp_path / "j.sqlite", base_url="http://127.0.0.1:1/api/v1", **options
        )
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_can_no_longer_be_written_ends_the_run(tmp_path: Path) -> None:
    journal = tmp_path / "j.sqlite"

    async def answer(fields: dict[str, Any], before: int) -> Response:
        with sqlite3.connect(journal) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON exchanges BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        other.close()
        return await greet(fields, before)

    with pytest.raises(JournalError, match=r"cannot be written \(disk full\): what was written before is safe"):
        run(answer, prompts("a"), journal)


def test_a_reply_from_another_provider_is_kept_and_rejected(tmp_path: Path) -> None:
    async def answer(fields: dict[str, Any], before: int) -> Response:
        pieces = events(f"Hello, {text_of(fields)}")
        return stream([piece.replace(b"Loopback", b"Other") for piece in pieces] if text_of(fields) == "b" else pieces)

    journal = tmp_path / "j.sqlite"
    summary, texts = run(answer, prompts("a", "b"), journal)
    assert sorted(texts) == ["a", "b"]
    assert (summary.finished, summary.failed, summary.cost) == (1, {"wrong_provider": 1}, 0.5)
    rejected = next(each for each in read_journal(journal) if each.prompt_id == "b")
    assert rejected.failure == "wrong_provider"
    assert b"Hello, b" in rejected.transfer.body
    outcomes = {type(each.outcome).__name__ for each in read_sources([journal])}
    kinds = [each.outcome.kind for each in read_sources([journal]) if isinstance(each.outcome, Failure)]
    assert (outcomes, kinds) == ({"Reply", "Failure"}, [FailureKind.WRONG_PROVIDER])


def test_requests_name_the_full_slug_and_the_quantisation(tmp_path: Path) -> None:
    with serve(greet, [listed("loop/fp8", quantization="fp8")]) as (base_url, seen):
        run_generation(prompts("a"), ["loop"], SETTINGS, tmp_path / "j.sqlite", base_url=base_url)
        with (
            pytest.raises(OpenRouterError, match="gives at most 50 tokens"),
            serve(greet, [listed("loop/fp8", max_completion_tokens=50)]) as (other, _),
        ):
            run_generation(prompts("a"), ["loop"], SETTINGS, tmp_path / "k.sqlite", base_url=other)
    assert json.loads(seen.bodies[0])["provider"] == {
        "only": ["loop/fp8"],
        "allow_fallbacks": False,
        "require_parameters": True,
        "quantizations": ["fp8"],
    }


def test_an_unpinned_run_has_to_be_asked_for(tmp_path: Path) -> None:
    unpinned = replace(SETTINGS, unpinned=True)
    with serve_listed(greet) as (base_url, seen):
        summary = run_generation(prompts("a"), [], unpinned, tmp_path / "j.sqlite", base_url=base_url)
    assert summary.finished == 1
    assert json.loads(seen.bodies[0])["provider"] == {"require_parameters": True}


def test_an_engine_is_its_own_provider(tmp_path: Path) -> None:
    with serve(greet) as (base_url, seen):
        engine = base_url.replace("/api/v1", "/v1")
        settings = replace(SETTINGS, return_token_ids=True)
        summary = run_generation(prompts("a"), [], settings, tmp_path / "j.sqlite", base_url=engine)
    assert summary.finished == 1
    body = json.loads(seen.bodies[0])
    assert (body["return_token_ids"], "provider" in body) == (True, False)


@pytest.mark.parametrize(
    ("limits", "finished", "told"),
    [
        # `events` bills 15 tokens and a quarter of a dollar; a worst case is some 400 bytes of request and 100 tokens
        (Limits(requests=3), 3, "limit of 3 requests"),
        (Limits(dollars=1.0), 4, "1.0000 dollars are spent"),
        (Limits(tokens=600), 4, "tokens are spent"),
        (Limits(seconds=0.0), 0, "limit of 0 seconds"),
    ],
)
def test_a_limit_ends_the_run_before_it_is_passed(tmp_path: Path, limits: Limits, finished: int, told: str) -> None:
    journal = tmp_path / "j.sqlite"
    summary, texts = run(greet, prompts(*"abcdefgh"), journal, limits=limits, concurrency=1)
    assert summary.stopped
    assert told in summary.stopped
    if limits.tokens is None:
        assert summary.finished == len(texts) == finished
    assert summary.prompt_tokens + summary.completion_tokens <= (limits.tokens or 1000)
    if limits.seconds is None:
        again, texts = run(greet, prompts(*"abcdefgh"), journal, limits=limits, concurrency=1)
        assert (again.finished, texts) == (0, [])


def test_too_many_failures_stop_the_run(tmp_path: Path) -> None:
    async def refuse(_: dict[str, Any], __: int) -> Response:
        return error(404)

    with pytest.raises(RunStopped, match="5 of 5 requests failed, 5 of them with http_error"):
        run(refuse, prompts(*"abcdefgh"), tmp_path / "j.sqlite", limits=Limits(failures_after=5), concurrency=1)


def test_a_place_is_not_empty_while_the_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_many = Journal.add_many
    fifth = threading.Event()
    waited: list[bool] = []

    def slow(self: Journal, exchanges: Sequence[Exchange]) -> list[bool]:
        waited.append(fifth.wait(10))
        return add_many(self, exchanges)

    async def answer(fields: dict[str, Any], before: int) -> Response:
        if text_of(fields) == "e":
            fifth.set()
        return await greet(fields, before)

    monkeypatch.setattr(Journal, "add_many", slow)
    summary, texts = run(answer, prompts(*"abcde"), tmp_path / "j.sqlite", concurrency=4)
    # the first four are not written yet when the fifth is asked
    assert waited[0]
    assert (summary.finished, sorted(texts)) == (5, [*"abcde"])
