"""Which API stands at an address: what its requests look like, and which key it gets.

Sources: OpenRouter's documentation; Moonshot's (`thinking`, `stream_options`); that of the OpenAI-compatible servers of
vLLM and SGLang (`chat_template_kwargs`, `return_token_ids`, `stream_options`).
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import SecretStr

from kimi_helpers.keys import find_key, get_key


class OpenRouterError(RuntimeError):
    """The API cannot be used as asked; the message is one sentence and holds no secret."""


@dataclass(frozen=True)
class Api:
    """A kind of chat-completions API.

    Attributes:
        name: of the kind.
        key_variable: the environment variable that holds its key.
        needs_key: whether nothing can be asked without one.
        routes: whether it stands before many providers, and takes `provider` and `plugins`.
        headers: sent with each request.
    """

    name: str
    key_variable: str
    needs_key: bool
    routes: bool
    headers: Mapping[str, str]

    def thinking(self, enabled: bool) -> dict[str, Any]:
        """The part of a request that switches thinking on or off."""
        if self.routes:
            return {"reasoning": {"enabled": enabled}}
        if self is MOONSHOT:
            return {"thinking": {"type": "enabled" if enabled else "disabled"}}
        return {"chat_template_kwargs": {"thinking": enabled}}


OPENROUTER = Api(
    "OpenRouter",
    "OPENROUTER_API_KEY",
    needs_key=True,
    routes=True,
    # The gateway's own record of its routing goes into the reply; no reply is another request's, with zeroed counts.
    headers={"X-OpenRouter-Metadata": "enabled", "X-OpenRouter-Cache": "false"},
)
MOONSHOT = Api("Moonshot", "MOONSHOT_API_KEY", needs_key=True, routes=False, headers={})
# vLLM, SGLang, and whatever else speaks as they do.
ENGINE = Api("an engine", "ENGINE_API_KEY", needs_key=False, routes=False, headers={})

_HOSTS = {"openrouter.ai": OPENROUTER, "moonshot.ai": MOONSHOT, "moonshot.cn": MOONSHOT}
_LOOPBACK_OPENROUTER = "/api/v1"


def is_loopback(url: httpx.URL) -> bool:
    """Whether the address is of this machine, by its literal name: nothing is looked up."""
    try:
        return url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return False


def api_of(url: httpx.URL) -> Api:
    """The API of an address, by its host; on this machine `/api/v1` is a loopback OpenRouter, the rest an engine."""
    for host, api in _HOSTS.items():
        if url.host == host or url.host.endswith(f".{host}"):
            return api
    if is_loopback(url) and url.path.rstrip("/") == _LOOPBACK_OPENROUTER:
        return OPENROUTER
    return ENGINE


def key_for(url: httpx.URL) -> SecretStr | None:
    """The key that an address gets, in a class that shows it nowhere; each kind of API has a variable of its own.

    A loopback OpenRouter gets none. Keys travel over https alone, or inside this machine.

    Raises:
        OpenRouterError: there is no usable key, or it would travel in the open.
    """
    api = api_of(url)
    if api.needs_key and is_loopback(url):
        return None
    if not api.needs_key and not find_key(api.key_variable):
        return None
    if url.scheme != "https" and not is_loopback(url):
        raise OpenRouterError(
            f"{url.scheme}://{url.host} gets no key: the key in {api.key_variable} would travel unencrypted; use https."
        )
    return read_key(api.key_variable)


def read_key(variable: str) -> SecretStr:
    """A key from the environment or `.env`.

    Raises:
        OpenRouterError: it is not set, or has characters that no HTTP header takes.
    """
    try:
        key = get_key(variable)
    except LookupError as error:
        raise OpenRouterError(str(error)) from None
    # httpx repeats a header it cannot send in its error: such a key must not get that far.
    if not all("!" <= character <= "~" for character in key.get_secret_value()):
        raise OpenRouterError(f"{variable} holds a blank or a character outside ASCII: copy the key again.")
    return key
