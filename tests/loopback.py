"""A scripted chat-completions server on this machine, for tests of the client and of generation."""

import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


@dataclass
class Seen:
    """What the server was sent."""

    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def texts(self) -> list[str]:
        """The text of each request's last message."""
        return [json.loads(body)["messages"][-1]["content"] for body in self.bodies]


Answer = Callable[[dict[str, Any], int], Awaitable[Response]]


def listed(tag: str, **fields: Any) -> dict[str, Any]:
    """An endpoint of a listing."""
    pricing = {"prompt": "0.000001", "completion": "0.00001"}
    parameters = ["max_tokens", "seed", "tools", "reasoning"]
    return {
        "tag": tag,
        "provider_name": "Loopback",
        "pricing": pricing,
        "supported_parameters": parameters,
        "quantization": "int4",
    } | fields


@contextmanager
def serve(answer: Answer, endpoints: Sequence[dict[str, Any]] = ()) -> Iterator[tuple[str, Seen]]:
    """Serve on a free port: yields the base URL and what was sent. `endpoints` are listed for every model, if any.

    `answer` gets the path (under "path"), the headers (under "headers") and, of a post, the body's fields; and how
    often the same prompt was asked before.
    """
    seen = Seen()

    async def handle(request: Request) -> Response:
        if endpoints and request.url.path.endswith("/endpoints"):
            return Response(json.dumps({"data": {"endpoints": list(endpoints)}}), media_type="application/json")
        body = await request.body()
        fields = json.loads(body) if body else {}
        before = seen.texts().count(fields["messages"][-1]["content"]) if body else 0
        seen.headers.append(dict(request.headers))
        if body:
            seen.bodies.append(body)
        return await answer(fields | {"path": request.url.path, "headers": dict(request.headers)}, before)

    app = Starlette(routes=[Route("/{path:path}", handle, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/api/v1", seen
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def events(content: str, *, end: bool = True) -> list[bytes]:
    """The pieces of a streamed reply whose text is `content`."""
    head = {"id": "gen-1", "model": "moonshotai/kimi-k2.5-0127", "provider": "Loopback"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}
    delta = {"role": "assistant", "reasoning": "Hm.", "content": ""}
    choices = [
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {"content": content}, "finish_reason": None},
        {"index": 0, "delta": {"content": ""}, "finish_reason": "stop", "native_finish_reason": "stop"},
    ]
    bodies: list[dict[str, Any]] = [head | {"choices": [choice]} for choice in choices]
    bodies[-1]["usage"] = usage
    lines = [json.dumps(body, ensure_ascii=False) for body in bodies] + (["[DONE]"] if end else [])
    return [b": OPENROUTER PROCESSING\n\n", *(f"data: {line}\n\n".encode() for line in lines)]


def stream(pieces: list[bytes], *, breaks: bool = False) -> Response:
    """A streamed response, piece by piece; `breaks` cuts the connection after the last."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if breaks:
            raise ConnectionError("cut on purpose")

    return StreamingResponse(body(), media_type="text/event-stream")


def error(status: int, message: str = "no", **metadata: Any) -> Response:
    """An error as OpenRouter writes it."""
    body = {"error": {"code": status, "message": message, "metadata": metadata}}
    return Response(json.dumps(body), status_code=status, media_type="application/json")
