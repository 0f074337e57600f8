"""What is known of hosts, read from profile files: data, so that a new host needs no code."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ProfileError(ValueError):
    """A profile file that cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True)
class ProviderProfile:
    """What is known of a host: that it returns text unchanged, and how it counts.

    Attributes:
        provider: the host's name, as its replies state it.
        end_token_counted: whether `completion_tokens` includes the end-of-turn token.
        evidence: what the profile rests on, for people.
    """

    provider: str
    end_token_counted: bool
    evidence: str


class _Profile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    provider: str = Field(min_length=1)
    end_token_counted: bool
    evidence: str = Field(min_length=1)


class _ProfileFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    profile: list[_Profile]


def read_profiles(path: Path | str) -> Mapping[str, ProviderProfile]:
    """Profiles by the provider's name, from a TOML file of `[[profile]]` tables.

    Raises:
        ProfileError: no such file, not TOML, a field missing, unknown or of the wrong type, a provider twice.
    """
    try:
        rows = _ProfileFile.model_validate(tomllib.loads(Path(path).read_text("utf-8"))).profile
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path} cannot be read as a TOML file of profiles: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ProfileError(f"{path}: {place}: {first['msg']}; see data/profiles for an example.") from None
    profiles = {row.provider: ProviderProfile(**row.model_dump()) for row in rows}
    if len(profiles) < len(rows):
        raise ProfileError(f"{path}: a provider has two profiles; keep one.")
    return profiles
