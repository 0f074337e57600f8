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
from dataclasses import dataclass, field, replace
from itertools import count

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_helpers.formats import PromptError
from kimi_helpers.simulator.answers import answer
from kimi_helpers.simulator.bodies import Generation, encoded, error_body, event_stream, json_body
from kimi_helpers.simulator.chat_request import ChatRequest, RequestError, read_request
from kimi_helpers.simulator.completions import Completion, complete
from kimi_helpers.simulator.hosts import HOSTS, Host, allowed_hosts
from kimi_helpers.simulator.listings import (
    Model,
    endpoints_listing,
    find_model,
    generation_listing,
    key_listing,
    models_listing,
    truth_listing,
)
from kimi_helpers.simulator.noncanonical import split_kind
from kimi_helpers.simulator.token_evidence import Evidence, evidence_of
from kimi_helpers.vocabulary import Vocabulary, load_vocabulary

API = "/api/v1"
WRITES_A_REPLY = 4
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
        noncanonical_rate: share of replies in which the model splits one place otherwise than the tokenizer does.
        generations: the replies given so far, by generation id, without their text.
        asked: ids of replies whose `/generation` was asked for before: the first time it is not there yet.
        turn: which host is next to take an unpinned request.
    """

    vocabulary_for: Callable[[str], Vocabulary] = packaged_vocabulary
    noncanonical_rate: float = 0.0
    generations: dict[str, Generation] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    turn: Iterator[int] = field(default_factory=count)

    async def chat_completions(self, request: Request) -> Response:
        """`POST /chat/completions`."""
        try:
            asked = read_request(await request.body())
            model, host = _model_of(asked), self._host_for(asked)
            vocabulary = self.vocabulary_for(model.format.name)
            completion = complete(asked, model.format, vocabulary, host.system_prompt, self.noncanonical_rate)
        except (RequestError, PromptError) as error:
            raise HTTPException(400, str(error)) from error
        now = int(time.time())
        generation = Generation(
            id=f"gen-{now}-{secrets.token_hex(10)}",
            created=now,
            model=model.canonical_slug,
            host=host,
            completion=completion,
            answer=answer(host, vocabulary, completion, asked.stream),
            streamed=asked.stream,
            evidence=_evidence(asked, host, vocabulary, completion),
        )
        self.generations[generation.id] = _without_text(generation)
        return _reply(generation)

    def _host_for(self, asked: ChatRequest) -> Host:
        if asked.only is None:
            return HOSTS[next(self.turn) % len(HOSTS)]
        if allowed := allowed_hosts(asked.only):
            return allowed[0]
        raise HTTPException(404, f"No endpoints found for {asked.model} at {', '.join(asked.only) or 'no provider'}.")

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
            model = find_model(found.model)
            assert model
            kind = split_kind(found.completion.token_ids, self.vocabulary_for(model.format.name))
            return _json(truth_listing(found, kind))
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


def _evidence(asked: ChatRequest, host: Host, vocabulary: Vocabulary, completion: Completion) -> Evidence | None:
    wanted = asked.return_token_ids if host.evidence == "ids" else asked.logprobs
    if host.evidence is None or not wanted:
        return None
    return evidence_of(host.evidence, vocabulary, completion.prompt_ids, completion.token_ids, completion.thinking)


def _without_text(generation: Generation) -> Generation:
    """What the listings need of a reply: a server that gave ten thousands of them need not hold their text."""
    return replace(generation, answer=replace(generation.answer, reasoning=(), content=(), calls=()), evidence=None)


def _json(body: object) -> Response:
    return Response(encoded(body), media_type="application/json")


async def _error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = error_body(error.status_code, error.detail, _ERROR_TYPES.get(error.status_code, "unmapped"))
    return Response(body, error.status_code, media_type="application/json")


async def _writes(body: bytes) -> AsyncIterator[bytes]:
    size = len(body) // WRITES_A_REPLY + 1
    for start in range(0, len(body), size):
        yield body[start : start + size]


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


def _server(simulator: Simulator) -> uvicorn.Server:
    config = uvicorn.Config(
        simulator.app(),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
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
    _server(Simulator()).run(sockets=[bound])


@contextmanager
def running(
    vocabulary_for: Callable[[str], Vocabulary] = packaged_vocabulary, noncanonical_rate: float = 0.0
) -> Iterator[str]:
    """Serve from a thread of its own, beside whatever event loop runs already, and stop on leaving.

    Args:
        vocabulary_for: from a format's name to its vocabulary.
        noncanonical_rate: share of replies in which the model splits one place otherwise than the tokenizer does, a
            quarter of them into as many tokens; the truth of a reply says so in `kind`.

    Yields:
        the base URL, `http://127.0.0.1:PORT/api/v1`; true ids lie at `/truth/GENERATION_ID` of the same server.
    """
    bound = _bind("127.0.0.1", 0)
    server = _server(Simulator(vocabulary_for, noncanonical_rate))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True, name="simulator")
    thread.start()
    try:
        yield _base_url(bound)
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
