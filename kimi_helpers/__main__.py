"""The command line: thin, one verb a stage. Exit code 0: done; 1: some rows failed; 2: the arguments are wrong."""

from importlib import import_module

import click

# What --help says of each verb, so that it imports none of them: some take seconds.
VERBS = {
    "run": "Run notebooks headless.",
    "site": "Build pages to share from all runs.",
    "generate": "Ask providers for replies, into a journal.",
    "reconstruct": "Turn recorded replies or journals into graded token ids.",
    "providers": "Learn from replies what each host does, and compare hosts.",
    "prompt-ids": "Print the token ids of prompts.",
    "audit": "Look at every id of a vocabulary, and write what was found.",
    "training": "Make training sets, and export them to trainers.",
    "hidden-states": "Capture the hidden states of training rows.",
    "merge-journals": "Write several journals into one.",
    "native-samples": "Measure an engine's token ids against the vocabulary.",
    "simulate": "Serve the loopback hosts, whose true token ids are known.",
    "vocabulary": "Where a vocabulary comes from.",
}


class _Verbs(click.Group):
    """Loads a verb when it is called: `kimi_helpers.commands.VERB` holds a command of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"kimi_helpers.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Kimi replies of chat-completions APIs, turned into graded token ids."""


if __name__ == "__main__":
    main(prog_name="python -m kimi_helpers")
