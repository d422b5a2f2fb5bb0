"""The group of all commands: a table of names and summaries."""

from importlib import import_module
from typing import cast

import click

from momentous.cli.terminal import report_errors
from momentous.version import __version__

# Each has a module of its name with a click command called `command`, or stands in that of those
# that ask a model; it is imported when the command is run.
COMMANDS = {
    "demo": "Run a small version of the paper's comparison.",
    "methods": "List the methods with their guarantees and costs.",
    "compare": "Run methods on problems and compare what they cost.",
    "scoreboard": "Run all methods on all problems, write the page.",
    "fit": "Fit a low-rank model to a file of ratings.",
    "evaluate": "Measure how well a model predicts a file of ratings.",
    "predict": "Predict the ratings of pairs of ids.",
    "recommend": "Recommend the best items to a user.",
    "similar": "List the items, or users, most similar to one.",
    "explain": "Split the score of an item over a user's ratings.",
    "fold-in": "Add users to a model without a new fit.",
    "data": "Files of ratings: what is in them, where to get some.",
    "reproduce": "Run the paper's experiments and write a report.",
    "tune": "Search the step sizes of the paper's methods.",
    "completion": "Print the script for the tab key of a shell.",
}
OF_MODEL = ("evaluate", "predict", "recommend", "similar", "explain", "fold-in")

PREFIX = "MOMENTOUS"  # of environment variables
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "auto_envvar_prefix": PREFIX,
}


class CommandTable(click.Group):
    """A group whose commands are looked up in `COMMANDS`, and whose errors are one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one command."""
        if name not in COMMANDS:
            return None
        if name in OF_MODEL:
            command = getattr(import_module("momentous.cli.model"), name.replace("-", "_"))
        else:
            command = import_module(f"momentous.cli.{name}").command
        name_variables(command, f"{PREFIX}_{name}")
        return cast(click.Command, command)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """``--debug`` may stand anywhere before ``--``."""
        end = args.index("--") if "--" in args else len(args)
        words = [word for word in args[:end] if word != "--debug"]
        flags = ["--debug"] if len(words) < end else []
        return super().parse_args(context, [*flags, *words, *args[end:]])

    def invoke(self, context: click.Context) -> object:
        """Run the command; what goes wrong ends in one line."""
        with report_errors(debug=context.params["debug"]):
            return super().invoke(context)


@click.group(cls=CommandTable, context_settings=SETTINGS)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="momentous")
def momentous(debug: bool) -> None:
    """Smooth nonconvex optimisation by accelerated methods with guarantees, and ratings."""


def name_variables(command: click.Command, prefix: str) -> None:
    """Let options be set under the names that are typed, also where the code has others."""
    for option in command.params:
        if isinstance(option, click.Option):
            typed = max(option.opts, key=len).lstrip("-").replace("-", "_")
            option.envvar = f"{prefix}_{typed}".upper()
    for name, inner in getattr(command, "commands", {}).items():
        name_variables(inner, f"{prefix}_{name}")
