"""How many requests are on their way, by hand."""

import asyncio

from kimi_helpers.pacing import Pace


async def hold(pace: Pace, released: asyncio.Event, began: list[float]) -> None:
    async with pace.turn() as now:
        began.append(now)
        await released.wait()


def test_a_refusal_halves_once_and_answers_raise_by_one_a_round() -> None:
    async def main() -> None:
        pace, released, began = Pace(8), asyncio.Event(), list[float]()
        tasks = [asyncio.create_task(hold(pace, released, began)) for _ in range(12)]
        await asyncio.sleep(0.01)
        assert (pace.in_flight, len(began)) == (8, 8)
        for start in began:
            pace.refused(start, 0)
        assert pace.limit == 4
        for _ in range(5):
            pace.answered()
        # 4 + 1/4 + 1/4.25 + ...: about one more after four to five answers
        assert 5 < pace.limit < 5.25
        released.set()
        await asyncio.gather(*tasks)
        assert (pace.in_flight, len(began)) == (0, 12)

    asyncio.run(main())


def test_retry_after_holds_all_and_a_closed_pace_lets_all_pass() -> None:
    async def main() -> None:
        pace, released, began = Pace(4), asyncio.Event(), list[float]()
        released.set()
        pace.refused(1e12, 100)
        tasks = [asyncio.create_task(hold(pace, released, began)) for _ in range(3)]
        await asyncio.sleep(0.02)
        assert began == []
        pace.close()
        await asyncio.gather(*tasks)
        assert len(began) == 3

    asyncio.run(main())
