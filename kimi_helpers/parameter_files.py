"""Files of parameters, in YAML that means what it says, and the runs that several values of one parameter ask for.

YAML 1.1 reads `no` as false, `012` as ten, `1:30` as ninety and `1e-5` as text. Here a plain value is its text, and the
notebook's annotation says what it is.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from kimi_helpers.notebook_parameters import ParameterError

MATRIX = "matrix"


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader whose plain values are text; `null` and `~` are None, `<<` merges, a key comes once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = {name for name in names if isinstance(name, str) and names.count(name) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"{min(twice)} is given twice; keep one", node.start_mark
            )
        return super().construct_mapping(node, deep)


_KEPT = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
_PlainLoader.yaml_implicit_resolvers = {
    first: kept
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    if (kept := [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT])
}


def read_parameter_file(path: Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The parameters of a file, and those that its `matrix` gives several values.

    Raises:
        ParameterError: it is no YAML of that form; the text never repeats a line of it, since a key may stand there.
    """
    try:
        content = yaml.load(path.read_text("utf-8"), _PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ParameterError(f"{path} is not YAML: {_problem(error)}") from None
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ParameterError(f"{path} does not map parameter names to values; write lines of `name: value`")
    matrix = content.pop(MATRIX, {})
    if not isinstance(matrix, dict) or not all(isinstance(values, list) and values for values in matrix.values()):
        raise ParameterError(f"{path}: {MATRIX} does not map names to lists; write lines of `name: [value, value]`")
    return content, matrix


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def combinations(
    files: Sequence[tuple[Mapping[str, Any], Mapping[str, list[Any]]]], given: Sequence[tuple[str, str]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The parameters of each run, and of them those in which it differs from the others.

    A later file wins over an earlier one, and what is given on the command line over all. A name that is given several
    times, or that a matrix gives several values, makes a run a value; several such names, a run a combination.
    """
    fixed: dict[str, Any] = {}
    several: dict[str, list[Any]] = {}
    command_line: dict[str, list[Any]] = {}
    for name, value in given:
        command_line.setdefault(name, []).append(value)
    sources = [*files, ({}, command_line)]
    for plain, matrix in sources:
        for name in (*plain, *matrix):
            fixed.pop(name, None)
            several.pop(name, None)
        fixed |= plain
        several |= {name: values for name, values in matrix.items() if len(values) > 1}
        fixed |= {name: values[0] for name, values in matrix.items() if len(values) == 1}
    chosen = [dict(zip(several, values, strict=True)) for values in product(*several.values())]
    return [(fixed | own, own) for own in chosen]
