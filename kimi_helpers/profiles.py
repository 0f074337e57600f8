"""What is known of hosts, read from profile files: data, so that a new host needs no code."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from kimi_helpers.serving_stacks import ServingStack, known_stacks
from kimi_helpers.workspace import write_whole


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
        slug: the endpoint that was asked; None where it is not known, as the rest.
        quantization: of that endpoint.
        model: the canonical slug of the replies.
        dated: when the profile was learnt. Hosts change.
    """

    provider: str
    stacks: tuple[ServingStack, ...]
    replies: int | None
    evidence: str
    slug: str | None = None
    quantization: str | None = None
    model: str | None = None
    dated: date | None = None


@dataclass(frozen=True)
class _Row:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    provider: str
    stacks: list[str]
    replies: Annotated[int, Field(ge=0)] | Literal["built"]
    evidence: str
    slug: str | None = None
    quantization: str | None = None
    model: str | None = None
    dated: date | None = None


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
    named = tuple(stacks[name] for name in row.stacks)
    about = (row.slug, row.quantization, row.model, row.dated)
    return ProviderProfile(row.provider, named, replies, row.evidence, *about)


def write_profiles(path: Path, profiles: Iterable[ProviderProfile], heading: str = "") -> None:
    """Write profiles with their stacks to a TOML file that `read_profiles` reads; it is there whole or not at all.

    Args:
        path: of the file.
        profiles: each of another provider; stacks of the same name must be the same.
        heading: a comment of one line.
    """
    listed = list(profiles)
    stacks = {stack.name: stack for profile in listed for stack in profile.stacks}
    plain = {each.name: each.default for each in fields(ServingStack)}
    tables = [f"# {' '.join(heading.split())}\n"] if heading else []
    for stack in stacks.values():
        values = {name: value for name in plain if (value := getattr(stack, name)) != plain[name]}
        tables.append(_table("stack", values))
    for profile in listed:
        values = {each.name: getattr(profile, each.name) for each in fields(ProviderProfile)}
        values["stacks"] = [stack.name for stack in profile.stacks]
        values["replies"] = "built" if profile.replies is None else profile.replies
        tables.append(_table("profile", {name: value for name, value in values.items() if value is not None}))
    write_whole(path, "\n".join(tables).encode())


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "".join([f"[[{name}]]\n", *(f"{key} = {_toml(value)}\n" for key, value in values.items())])


def _toml(value: Any) -> str:
    """A value as TOML writes it. Its basic strings are JSON's, but for the control character 0x7f."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple | frozenset):
        members = sorted(value) if isinstance(value, frozenset) else value
        return f"[{', '.join(map(_toml, members))}]"
    if isinstance(value, str):
        text = value.encode(errors="backslashreplace").decode()
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
