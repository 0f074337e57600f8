"""`routing.json`: which endpoints a comparison of hosts recommends, for a generation run to read."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class RoutingError(ValueError):
    """A file that names no endpoints; the message says what is wrong and what to do."""


class Routing(BaseModel):
    """What a run asks.

    Attributes:
        model: `author/slug`.
        providers: full slugs of the endpoint listing.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    model: str = Field(min_length=1)
    providers: list[str] = Field(min_length=1)


def read_routing(path: Path) -> Routing:
    """Read a file as notebook 02 writes it.

    Raises:
        RoutingError: it cannot be read, or names no model and providers.
    """
    try:
        return Routing.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RoutingError(
            f"{path} cannot be read ({error.strerror}): run 02_provider_comparison, which writes it where the data"
            " recommends a host, or leave `routing` empty and name `providers`."
        ) from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the file"
        raise RoutingError(
            f"{path} is no routing.json ({place}: {fault['msg']}): it holds one JSON object with `model` and a list"
            " `providers`."
        ) from None
