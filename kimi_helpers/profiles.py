"""What is known of hosts, read from profile files: data, so that a new host needs no code."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from kimi_helpers.serving_stacks import ServingStack, known_stacks


class ProfileError(ValueError):
    """A profile file that cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True)
class ProviderProfile:
    """What is known of a host.

    Attributes:
        provider: the host's name, as its replies state it.
        stacks: the serving stacks that its replies leave open; one where it is fixed.
        replies: how many replies the profile rests on; None where it is known from how the host is built.
        evidence: what they showed and when, for people.
    """

    provider: str
    stacks: tuple[ServingStack, ...]
    replies: int | None
    evidence: str


@dataclass(frozen=True)
class _Row:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    provider: str
    stacks: list[str]
    replies: Annotated[int, Field(ge=0)] | Literal["built"]
    evidence: str


@dataclass(frozen=True)
class _File:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    profile: list[_Row]
    stack: list[ServingStack] = field(default_factory=list)


def read_profiles(path: Path | str) -> Mapping[str, ProviderProfile]:
    """Profiles by the provider's name, from a TOML file of `[[profile]]` tables.

    A profile names serving stacks, of the registry or of the file's own `[[stack]]` tables, and how many replies it
    rests on; `replies = "built"` says that it is known from how the host is built instead.

    Raises:
        ProfileError: no such file, not TOML, a field missing, unknown or of the wrong type, an unknown stack, a
            provider twice.
    """
    try:
        file = TypeAdapter(_File).validate_python(tomllib.loads(Path(path).read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path} cannot be read as a TOML file of profiles: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ProfileError(f"{path}: {place}: {first['msg']}; see data/profiles for an example.") from None
    stacks = dict(known_stacks()) | {stack.name: stack for stack in file.stack}
    profiles = {row.provider: _profile(row, stacks, path) for row in file.profile}
    if len(profiles) < len(file.profile):
        raise ProfileError(f"{path}: a provider has two profiles; keep one.")
    return profiles


def _profile(row: _Row, stacks: Mapping[str, ServingStack], path: Path | str) -> ProviderProfile:
    if not row.stacks:
        raise ProfileError(f"{path}: the profile of {row.provider} names no serving stack.")
    if unknown := [name for name in row.stacks if name not in stacks]:
        raise ProfileError(f"{path}: there is no serving stack {unknown[0]!r}; known are {', '.join(stacks)}.")
    replies = None if row.replies == "built" else row.replies
    return ProviderProfile(row.provider, tuple(stacks[name] for name in row.stacks), replies, row.evidence)
