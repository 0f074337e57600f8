"""Where a split pattern puts borders in a text, which tiktoken does not tell: merges never cross one."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import regex


@dataclass(frozen=True)
class SplitPattern:
    """A split pattern read by the package regex, whose sets (`&&`) are those of tiktoken's own matcher.

    The two can carry different versions of Unicode; tests hold their pieces equal.

    Attributes:
        source: the pattern, e.g. `KIMI_PATTERN`.
    """

    source: str

    @cached_property
    def _compiled(self) -> "regex.Pattern[str]":
        return regex.compile(self.source, regex.VERSION1)

    def pieces(self, text: str) -> Iterator[str]:
        """The pieces of a text: each is merged by itself."""
        return (match.group() for match in self._compiled.finditer(text))

    def borders(self, text: str) -> set[int]:
        """Character offsets at which a piece ends: the end of the text among them, 0 not."""
        return {match.end() for match in self._compiled.finditer(text)}
