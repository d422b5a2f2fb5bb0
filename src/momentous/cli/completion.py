"""``momentous completion``."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that lets a SHELL complete commands, options and files by the tab key.

    bash: eval "$(momentous completion bash)" in ~/.bashrc.  zsh: the same in ~/.zshrc.  fish:
    momentous completion fish > ~/.config/fish/completions/momentous.fish
    """
    from momentous.cli.app import PREFIX, momentous

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(momentous, {}, "momentous", f"_{PREFIX}_COMPLETE").source())
