"""The parameters of a notebook: read from its `parameters` cell, and checked before anything runs.

papermill only warns of an unknown name, guesses types from the text (`false` becomes a true string, `007` becomes 7)
and reads the cell with a pattern that misses unions. Here the cell is parsed, a name must be declared, and a value must
fit the annotation.
"""

import ast
import io
import json
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter

from kimi_helpers.leaks import find_leak, is_secret_name
from kimi_helpers.notebook_files import NotebookError, has_tag, load_notebook

PARAMETERS_TAG = "parameters"
SCALARS: dict[str, type] = {"bool": bool, "float": float, "int": int, "str": str}


class ParameterError(NotebookError):
    """A parameter that is declared or given wrongly; the text says what to do."""


@dataclass(frozen=True)
class Parameter:
    """A parameter that a notebook declares.

    Attributes:
        name: the variable.
        annotation: its type as written, e.g. `int | None`.
        default: the literal it has in the notebook.
        help: the comment at the end of its line, without the `#`; empty where there is none.
    """

    name: str
    annotation: str
    default: Any
    help: str


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters that the notebook's one cell tagged `parameters` declares; none without such a cell.

    Raises:
        NotebookError: the notebook cannot be read.
        ParameterError: several cells are tagged, or the cell holds more than annotated literals.
    """
    tagged = [cell for cell in load_notebook(notebook).cells if has_tag(cell, PARAMETERS_TAG)]
    if len(tagged) > 1:
        raise ParameterError(
            f"{notebook.name}: {len(tagged)} cells are tagged `parameters`; keep one, since the later one would undo "
            "what was given"
        )
    return parse_parameters(tagged[0].source, notebook.name) if tagged else {}


def parse_parameters(source: str, notebook: str) -> dict[str, Parameter]:
    """The parameters in the source of a `parameters` cell; `notebook` names it in an error.

    Raises:
        ParameterError: a line is no annotated literal (`limit: int = 20  # prompts to send`), or declares a name again.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ParameterError(f"{notebook}: line {error.lineno} of the parameters cell is not Python") from error
    comments = _comments(source)
    declared: dict[str, Parameter] = {}
    for statement in statements:
        parameter = _declaration(statement, comments, f"{notebook}, line {statement.lineno} of the parameters cell")
        if parameter.name in declared:
            raise ParameterError(f"{notebook}: the parameters cell declares {parameter.name} twice; keep one")
        declared[parameter.name] = parameter
    return declared


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _declaration(statement: ast.stmt, comments: Mapping[int, str], where: str) -> Parameter:
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name) or not statement.value:
        raise ParameterError(f"{where}: write `name: type = literal  # what it does`, and nothing else")
    name, annotation = statement.target.id, ast.unparse(statement.annotation)
    try:
        default = ast.literal_eval(statement.value)
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"{where}: the default of {name} must be a literal; a derived value would not follow what is given, so "
            "compute it in a later cell"
        ) from error
    help_text = comments.get(statement.end_lineno or 0, "").strip()
    parameter = Parameter(name, annotation, default, help_text)
    try:
        if _typed(parameter, default) != default:  # a string that would have to be converted
            raise ValueError(f"the default of {name} is {default!r}, not {annotation}")
    except ValueError as error:
        raise ParameterError(f"{where}: {error}") from error
    return parameter


def check_parameters(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values, as their parameters' types.

    A string is converted by the annotation: `"7"` to 7 for `int`, `"false"` to False for `bool`; for `str` it stays as
    it is. A string for a list is a JSON list, or its items between commas. `"None"` and `"null"` mean None where the
    annotation allows it. The items of a list of strings are converted likewise. Any other value must
    have the type already.

    Raises:
        ParameterError: a name that is not declared, a value of another type or one that JSON cannot hold (NaN,
            infinity, half a surrogate pair), or a secret; the text of the error never holds the secret.
    """
    return {name: _checked(declared, name, value) for name, value in given.items()}


def _checked(declared: Mapping[str, Parameter], name: str, value: Any) -> Any:
    _refuse_misspelt(declared, name)
    _refuse_secret(name, value)
    if name not in declared:
        raise ParameterError(f"there is no parameter {name}; declared are: {', '.join(declared) or 'none'}")
    try:
        return _typed(declared[name], value)
    except ValueError as error:
        raise ParameterError(str(error)) from error


def _refuse_misspelt(declared: Mapping[str, Parameter], name: str) -> None:
    nearest = get_close_matches(name, declared, n=1)
    if name not in declared and nearest:
        raise ParameterError(f"there is no parameter {name}; did you mean {nearest[0]}?")


def _refuse_secret(name: str, value: Any) -> None:
    if find_leak(name):
        raise ParameterError("the name of a parameter looks like an API key; keys belong in the environment")
    if is_secret_name(name) or find_leak(str(value)):
        raise ParameterError(
            f"parameter {name} looks like a secret, and parameters are saved in clear; set it as an environment "
            "variable instead"
        )


def _typed(parameter: Parameter, value: Any) -> Any:
    """The value as the parameter's type.

    Raises:
        ValueError: it does not fit.
    """
    expected = _type_of(ast.parse(parameter.annotation, mode="eval").body)
    try:
        typed = _convert(expected, value)
        json.dumps(typed, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        raise ValueError(f"parameter {parameter.name} is {parameter.annotation}, not {value!r:.80}") from error
    return typed


def _type_of(annotation: ast.expr) -> Any:
    match annotation:
        case ast.Name(id=name) if name in SCALARS:
            return SCALARS[name]
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type_of(left), _type_of(right)]  # noqa: UP007 - the members are known at run time only
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return list[_type_of(item)]  # type: ignore[misc]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            texts = choices.elts if isinstance(choices, ast.Tuple) else [choices]
            if all(isinstance(text, ast.Constant) and isinstance(text.value, str) for text in texts):
                return Literal[tuple(ast.literal_eval(text) for text in texts)]
    raise ValueError(
        f"{ast.unparse(annotation)} is no type of a parameter; use int, float, bool, str, list[...], Literal[...] of "
        "strings, or a union with None"
    )


def _convert(expected: Any, value: Any) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(expected, config=ConfigDict(allow_inf_nan=False))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return adapter.validate_python(value)  # of a file, in which every plain value is text
    if not isinstance(value, str):
        return adapter.validate_python(value, strict=True)
    members = get_args(expected) if get_origin(expected) is Union else (expected,)
    if value in ("None", "null") and type(None) in members:
        return None
    if str not in members and any(get_origin(member) is list for member in members):
        if value.lstrip().startswith("["):
            return adapter.validate_json(value, strict=True)
        items = [item.strip() for item in value.split(",")]
        return adapter.validate_python(items if value.strip() else [])
    return adapter.validate_python(value)
