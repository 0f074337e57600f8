"""Tool calls as the K2 vendor verifier measures them: arguments valid by their schema, and trigger agreement.

Definitions (MoonshotAI/K2-Vendor-Verifier): schema accuracy is the share of the replies that end in `tool_calls`
whose calls all have arguments that are JSON and valid by the schema of a declared function. Trigger similarity is the
F1 score of "the reply ends in tool_calls" against the replies of a reference host to the same requests.
"""

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft7Validator, SchemaError, ValidationError  # type: ignore[import-untyped]

from kimi_helpers.replies import Reply


def triggers(reply: Reply) -> bool:
    """Whether a reply ends in tool calls."""
    return reply.finish_reason == "tool_calls"


def calls_are_valid(reply: Reply, request: Mapping[str, Any] | None) -> bool | None:
    """Whether all calls of a reply fit their schemas; None where it does not end in calls or the tools are unknown."""
    schemas = _schemas(request)
    if not triggers(reply) or schemas is None:
        return None
    return bool(reply.tool_calls) and all(_fits(call.arguments, schemas.get(call.name)) for call in reply.tool_calls)


def _schemas(request: Mapping[str, Any] | None) -> dict[str, Any] | None:
    tools = (request or {}).get("tools")
    if not isinstance(tools, list):
        return None
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    return {
        each["name"]: each.get("parameters", {}) for each in functions if isinstance(each, Mapping) and "name" in each
    }


def _fits(arguments: str, schema: Any) -> bool:
    """Whether arguments are JSON of a schema; one that is no schema fits nothing."""
    if schema is None:
        return False
    try:
        Draft7Validator.check_schema(schema)
        Draft7Validator(schema).validate(json.loads(arguments))
    except (ValueError, RecursionError, SchemaError, ValidationError):
        return False
    return True


def f1(both: int, only_ours: int, only_theirs: int) -> float | None:
    """The F1 score of a trigger against the reference's; None where neither ever triggers."""
    total = 2 * both + only_ours + only_theirs
    return 2 * both / total if total else None
