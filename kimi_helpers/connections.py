"""A transport of httpx whose cost a request does not grow with the number of requests on their way.

The pool of httpcore goes through all of its connections, and looks at the socket of each idle one, whenever a request
begins or ends. Here each connection has a pool of its own, and those that are free wait on a stack.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast
from urllib.request import getproxies, proxy_bypass

import httpx

_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


def proxy_for(url: httpx.URL) -> str | None:
    """The proxy that the environment names for an address (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY` ...), or None.

    httpx asks the environment itself only where it makes the transport.
    """
    if proxy_bypass(url.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


class StackedConnections(httpx.AsyncBaseTransport):
    """As many connections as there are requests on their way at once; the one used last is taken first.

    Args:
        proxy: its address, or None.
    """

    def __init__(self, proxy: str | None = None) -> None:
        self._proxy = proxy
        self._ssl: ssl.SSLContext = httpx.create_ssl_context()  # read from disk once, not for each connection
        self._made: list[httpx.AsyncHTTPTransport] = []
        self._free: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send over a free connection; it is free again once the response is closed."""
        connection = self._free.pop() if self._free else self._make()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            self._free.append(connection)  # httpcore has closed what broke, and opens it anew
            raise
        stream = cast("httpx.AsyncByteStream", response.stream)
        response.stream = _Returning(stream, lambda: self._free.append(connection))
        return response

    def _make(self) -> httpx.AsyncHTTPTransport:
        made = httpx.AsyncHTTPTransport(verify=self._ssl, limits=_ONE, proxy=self._proxy, trust_env=False)
        self._made.append(made)
        return made

    async def aclose(self) -> None:
        """Close all connections."""
        while self._made:
            await self._made.pop().aclose()
        self._free.clear()


class _Returning(httpx.AsyncByteStream):
    """A response's bytes; when it is closed, its connection is given back, once."""

    def __init__(self, stream: httpx.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._stream = stream
        self._give_back: Callable[[], None] | None = give_back

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            give_back, self._give_back = self._give_back, None
            if give_back:
                give_back()
