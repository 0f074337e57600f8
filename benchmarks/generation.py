"""Requests a second against a server that answers after 200 ms, and CPU time a request beside openai's client.

    python benchmarks/generation.py [--in-flight 64 --in-flight 512] [--requests 2560]

The server is a process of its own. The ideal is one round of all requests on their way each 200 ms. Both clients ask
for the same streamed replies in the same run; ours judges and journals each of them, openai's reads each event.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import click
import httpx
from openai import AsyncOpenAI

from kimi_helpers.generation import Settings, run_generation
from kimi_helpers.prompts import Prompt

LATENCY = 0.2
EVENTS = 40
MODEL = "moonshotai/kimi-k2.5"


def serve() -> None:
    """Answer each request after the latency with a stream of some events; prints the port."""
    head = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "provider": "Loopback"}
    deltas = [{"role": "assistant", "content": f" word{place}"} for place in range(EVENTS)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices[-1]["finish_reason"] = "stop"
    lines = [json.dumps(head | {"choices": [choice]}) for choice in choices]
    lines[-1] = json.dumps(head | {"choices": choices[-1:], "usage": {"prompt_tokens": 9, "completion_tokens": EVENTS}})
    stream = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
    pricing = {"prompt": "0.000001", "completion": "0.000001"}
    endpoint = {"tag": "loop/int4", "provider_name": "Loopback", "pricing": pricing}
    listing = json.dumps({"data": {"endpoints": [endpoint]}}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                start = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in start.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                await reader.readexactly(length)
                if start.startswith(b"GET"):
                    kind, body = b"application/json", listing
                else:
                    await asyncio.sleep(LATENCY)
                    kind, body = b"text/event-stream", stream
                head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
                writer.write(head + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(main())


def ours(url: str, requests: int, in_flight: int) -> tuple[float, float]:
    """Seconds and CPU seconds of a run, journal included."""
    prompts = [Prompt(str(n), ({"role": "user", "content": str(n)},), None, True) for n in range(requests)]
    with tempfile.TemporaryDirectory() as folder:
        start, cpu = perf_counter(), process_time()
        summary = run_generation(
            prompts, ["loop"], Settings("bench", MODEL), Path(folder, "j.sqlite"), base_url=url, concurrency=in_flight
        )
        assert summary.finished == requests
        return perf_counter() - start, process_time() - cpu


def theirs(url: str, requests: int, in_flight: int) -> tuple[float, float]:
    """The same of openai's client, which keeps nothing."""

    async def main() -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        client = AsyncOpenAI(base_url=url, api_key="none", http_client=httpx.AsyncClient(limits=limits))
        left = iter(range(requests))

        async def work() -> None:
            for n in left:
                messages = [{"role": "user", "content": str(n)}]
                stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
                assert sum([1 async for _ in stream]) == EVENTS

        await asyncio.gather(*(work() for _ in range(in_flight)))

    start, cpu = perf_counter(), process_time()
    asyncio.run(main())
    return perf_counter() - start, process_time() - cpu


@click.command()
@click.option("--in-flight", "in_flights", multiple=True, type=int, default=(64, 512), show_default=True)
@click.option("--requests", default=2560, show_default=True, help="Of each client at each number, at least.")
@click.option("--serve", "is_server", is_flag=True, hidden=True)
def main(in_flights: tuple[int, ...], requests: int, is_server: bool) -> None:
    """Measure both clients at each number of requests on their way."""
    if is_server:
        serve()
        return
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/api/v1"
        try:
            ours(url, 64, 64)
            for in_flight in in_flights:
                # whole rounds: in a last one that is not full no client could keep the number on their way
                count, ideal = -(-requests // in_flight) * in_flight, in_flight / LATENCY
                used = {}
                for name, run in (("ours", ours), ("openai", theirs)):
                    seconds, used[name] = run(url, count, in_flight)
                    click.echo(
                        f"{name:6} {in_flight:4} in flight: {count / seconds:7.1f} requests/s, "
                        f"{100 * count / seconds / ideal:5.1f} % of the ideal, {1000 * used[name] / count:5.2f} ms CPU "
                        "a request"
                    )
                click.echo(f"ours / openai at {in_flight}: {used['ours'] / used['openai']:.2f} of the CPU time")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
