"""The group of all commands: a table of names, modules and summaries."""

from importlib import import_module

import click

from momentous.cli.environment import PREFIX, name_variables
from momentous.cli.terminal import report_errors
from momentous.version import __version__

# Each module has a click command called `command`; it is imported when the command is run.
COMMANDS = {
    "demo": ("momentous.cli.demo", "Run the paper's comparison in small, ending in a page."),
    "methods": ("momentous.cli.methods", "List the methods with their guarantees and costs."),
    "compare": ("momentous.cli.compare", "Run methods on problems and compare what they cost."),
    "scoreboard": ("momentous.cli.scoreboard", "Run all methods on all problems, write the page."),
    "fit": ("momentous.cli.fit", "Fit a low-rank model to a file of ratings."),
    "evaluate": ("momentous.cli.evaluate", "Measure how well a model predicts a file of ratings."),
    "predict": ("momentous.cli.predict", "Predict the ratings of pairs of ids."),
    "recommend": ("momentous.cli.recommend", "Recommend the best items to a user."),
    "similar": ("momentous.cli.similar", "List the items, or users, most like one."),
    "explain": ("momentous.cli.explain", "Show which ratings make the score of an item."),
    "fold-in": ("momentous.cli.fold_in", "Add users to a model without a new fit."),
    "data": ("momentous.cli.data", "Files of ratings: what is in them, where to get some."),
    "reproduce": ("momentous.cli.reproduce", "Run the paper's experiments and write a report."),
    "completion": ("momentous.cli.completion", "Print the script for the tab key of a shell."),
}


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
        command: click.Command = import_module(COMMANDS[name][0]).command
        name_variables(command, f"{PREFIX}_{name}")
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

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
