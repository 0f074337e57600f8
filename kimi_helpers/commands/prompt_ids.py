"""`prompt-ids`: conversations -> token ids of their prompts."""

import json
import sys
from types import UnionType
from typing import Any

import click

from kimi_helpers.commands.shared import format_option, load, tokenizer_option
from kimi_helpers.formats import FORMATS, PromptError
from kimi_helpers.workspace import printable

SWITCHES = ("thinking", "preserve_thinking", "add_generation_prompt")


@click.command("prompt-ids")
@click.argument("conversations", type=click.File("rb"))
@tokenizer_option
@format_option
@click.option("--recognise-specials", is_flag=True, help="Special tokens spelled in messages become tokens.")
def prompt_ids(conversations: Any, tokenizer: str | None, format_name: str | None, recognise_specials: bool) -> None:
    """Print the prompt's token ids, a JSON list a line, for CONVERSATIONS (JSON lines; - for standard input).

    A line holds `messages` and where they apply `tools`, `format`, `thinking`, `preserve_thinking` and
    `add_generation_prompt`. A line that cannot be rendered gives null, and a sentence on standard error.
    """
    failed = False
    for number, line in enumerate(conversations, 1):
        if line.strip():
            try:
                click.echo(json.dumps(_prompt_ids(line, tokenizer, format_name, recognise_specials)))
            except (ValueError, RecursionError) as error:
                failed = True
                click.echo("null")
                click.echo(f"line {number}: {printable(str(error))}", err=True)
    sys.exit(failed)


def _prompt_ids(line: bytes, tokenizer: str | None, format_name: str | None, recognise_specials: bool) -> list[int]:
    row = _conversation(line)
    name = format_name or row.get("format") or "kimi-k2.5"
    if name not in FORMATS:
        raise PromptError(f"there is no format {name!r}; the formats are {', '.join(FORMATS)}")
    format = FORMATS[name]
    switches = {switch: row[switch] for switch in SWITCHES if row.get(switch) is not None}
    return format.prompt_ids(
        load(tokenizer, format), row["messages"], row.get("tools"), recognise_specials=recognise_specials, **switches
    )


def _conversation(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"not JSON ({error}); write an object a line") from None
    if not isinstance(row, dict):
        raise PromptError("not a JSON object; write an object with a list of messages")
    kinds: dict[str, tuple[type | UnionType, str]] = {
        "messages": (list, "a list"),
        "tools": (list | None, "a list"),
        "format": (str | None, "a text"),
        **dict.fromkeys(SWITCHES, (bool | None, "true or false")),
    }
    for name, (kind, words) in kinds.items():
        if not isinstance(row.get(name), kind):
            raise PromptError(f"{name} must be {words}")
    return row
