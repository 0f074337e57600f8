"""A loopback server that answers as OpenRouter does.

It binds loopback addresses only, keeps everything in memory, and reads no `Authorization` header.
"""

import errno
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_helpers.formats import PromptError
from kimi_helpers.simulator.bodies import Generation, encoded, error_body, event_stream, json_body
from kimi_helpers.simulator.chat_request import ChatRequest, RequestError, read_request
from kimi_helpers.simulator.hosts import HOSTS, Completion, Host, allowed_hosts, answer
from kimi_helpers.simulator.listings import (
    Model,
    endpoints_listing,
    find_model,
    generation_listing,
    key_listing,
    models_listing,
    truth_listing,
)
from kimi_helpers.simulator.scripted_model import sample, write_turn
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

API = "/api/v1"
BYTES_A_WRITE = 997
SECONDS_TO_FINISH = 5

_ERROR_TYPES = {400: "invalid_request", 404: "not_found"}


def packaged_vocabulary(format: str) -> Vocabulary:
    """The vocabulary of a format, from the installed package."""
    return load_vocabulary(format=format)


@dataclass
class Simulator:
    """The state behind the routes.

    Attributes:
        vocabulary_for: from a format's name to its vocabulary.
        generations: the replies given so far, by generation id.
        asked: ids of replies whose `/generation` was asked for before: the first time it is not there yet.
        turn: which host is next to take an unpinned request.
    """

    vocabulary_for: Callable[[str], Vocabulary] = packaged_vocabulary
    generations: dict[str, Generation] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    turn: Iterator[int] = field(default_factory=count)

    async def chat_completions(self, request: Request) -> Response:
        """`POST /chat/completions`."""
        try:
            asked = read_request(await request.body())
            model, host = _model_of(asked), self._host_for(asked)
            completion = self._complete(asked, model)
        except (RequestError, PromptError) as error:
            raise HTTPException(400, str(error)) from error
        now = int(time.time())
        generation = Generation(
            id=f"gen-{now}-{secrets.token_hex(10)}",
            created=now,
            model=model.canonical_slug,
            host=host,
            completion=completion,
            answer=answer(host, self.vocabulary_for(model.format.name), completion),
            streamed=asked.stream,
        )
        self.generations[generation.id] = generation
        return _reply(generation)

    def _host_for(self, asked: ChatRequest) -> Host:
        if asked.only is None:
            return HOSTS[next(self.turn) % len(HOSTS)]
        if allowed := allowed_hosts(asked.only):
            return allowed[0]
        raise HTTPException(404, f"No endpoints found for {asked.model} at {', '.join(asked.only) or 'no provider'}.")

    def _complete(self, asked: ChatRequest, model: Model) -> Completion:
        vocabulary = self.vocabulary_for(model.format.name)
        prompt = model.format.prompt_ids(vocabulary, asked.prompt_messages(), asked.tools, asked.thinking)
        # K2-Thinking opens its own think section and has no switch
        thinks = model.format.opening_think == "model" or (model.format.opening_think == "prompt" and asked.thinking)
        ids = sample(write_turn(asked, thinks), model.format, vocabulary)
        kept = ids[: asked.limit]
        return Completion(tuple(prompt), tuple(kept), thinks, ended=len(kept) == len(ids))

    async def models(self, _request: Request) -> Response:
        """`GET /models`."""
        return _json(models_listing())

    async def endpoints(self, request: Request) -> Response:
        """`GET /models/{author}/{slug}/endpoints`."""
        slug = "{author}/{slug}".format(**request.path_params)
        if model := find_model(slug):
            return _json(endpoints_listing(model))
        raise HTTPException(404, f"{slug} is not a model")

    async def key(self, _request: Request) -> Response:
        """`GET /key`."""
        return _json(key_listing())

    async def generation(self, request: Request) -> Response:
        """`GET /generation?id=`: 404 the first time, as the real one needs a while."""
        id = request.query_params.get("id", "")
        found = self.generations.get(id)
        if found and id in self.asked:
            return _json(generation_listing(found))
        if found:
            self.asked.add(id)
        raise HTTPException(404, f"Generation {id} not found")

    async def truth(self, request: Request) -> Response:
        """`GET /truth/{id}`, outside the API: the true ids."""
        if found := self.generations.get(request.path_params["id"]):
            return _json(truth_listing(found))
        raise HTTPException(404, "no such generation")

    def app(self) -> Starlette:
        """The routes over this state."""
        return Starlette(
            routes=[
                Route(f"{API}/chat/completions", self.chat_completions, methods=["POST"]),
                Route(f"{API}/models", self.models),
                Route(f"{API}/models/{{author}}/{{slug}}/endpoints", self.endpoints),
                Route(f"{API}/generation", self.generation),
                Route(f"{API}/key", self.key),
                Route("/truth/{id}", self.truth),
            ],
            exception_handlers={HTTPException: _error},
        )


def _model_of(asked: ChatRequest) -> Model:
    if model := find_model(asked.model):
        return model
    raise RequestError(f"{asked.model} is not a valid model ID")


def _json(body: object) -> Response:
    return Response(encoded(body), media_type="application/json")


async def _error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = error_body(error.status_code, error.detail, _ERROR_TYPES.get(error.status_code, "unmapped"))
    return Response(body, error.status_code, media_type="application/json")


async def _writes(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), BYTES_A_WRITE):
        yield body[start : start + BYTES_A_WRITE]


def _reply(generation: Generation) -> Response:
    """The reply, in writes whose borders fall inside events and characters, as on a real network."""
    body = event_stream(generation) if generation.streamed else json_body(generation)
    kind = "text/event-stream" if generation.streamed else "application/json"
    return StreamingResponse(_writes(body), headers={"content-type": kind, "x-generation-id": generation.id})


def _bind(host: str, port: int) -> socket.socket:
    """A socket on a loopback address.

    Raises:
        ValueError: the address is not a loopback address.
        OSError: the port is taken.
    """
    address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    if not address.is_loopback:
        raise ValueError(f"{host} is not a loopback address; the simulator serves this machine only.")
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    # asyncio turns Nagle's delay off only where the protocol is named.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((str(address), port))
        bound.listen()
    except OSError as error:
        bound.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(error.errno, f"port {port} is taken; choose another, or 0 for a free one") from error
    return bound


def _server(vocabulary_for: Callable[[str], Vocabulary]) -> uvicorn.Server:
    app = Simulator(vocabulary_for).app()
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=SECONDS_TO_FINISH
    )
    return uvicorn.Server(config)


def _base_url(bound: socket.socket) -> str:
    address, port = bound.getsockname()[:2]
    return f"http://{f'[{address}]' if ':' in address else address}:{port}{API}"


def serve(port: int, host: str = "127.0.0.1") -> None:
    """Serve until interrupted; the base URL is printed once.

    Args:
        port: 0 takes a free one.
        host: a loopback address.

    Raises:
        ValueError: the host is not a loopback address.
        OSError: the port is taken.
    """
    bound = _bind(host, port)
    print(f"OpenRouter simulator at {_base_url(bound)}", flush=True)
    _server(packaged_vocabulary).run(sockets=[bound])


@contextmanager
def running(vocabulary_for: Callable[[str], Vocabulary] = packaged_vocabulary) -> Iterator[str]:
    """Serve from a thread of its own, beside whatever event loop runs already, and stop on leaving.

    Args:
        vocabulary_for: from a format's name to its vocabulary.

    Yields:
        the base URL, `http://127.0.0.1:PORT/api/v1`; true ids lie at `/truth/GENERATION_ID` of the same server.
    """
    bound = _bind("127.0.0.1", 0)
    server = _server(vocabulary_for)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True, name="simulator")
    thread.start()
    try:
        yield _base_url(bound)
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
