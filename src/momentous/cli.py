"""The command line: ``momentous demo`` and ``momentous methods``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Entry point of the ``momentous`` command."""
    try:
        import click  # noqa: F401
        import matplotlib  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(
            f"the command line needs {error.name}, which a library-only installation leaves out; "
            'install it with: pip install "momentous[app]"'
        )
    _commands()()


def _commands() -> Callable[[], None]:
    """The commands, made only when click is known to be there."""
    import click

    from momentous import __version__

    @click.group(context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(__version__, prog_name="momentous")
    def momentous() -> None:
        """Smooth nonconvex optimisation by accelerated methods that carry guarantees."""

    @momentous.command()
    @click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("momentous-demo"),
        show_default=True,
        help="Folder for the picture.",
    )
    @click.option(
        "--mu",
        type=click.FloatRange(1e-5, 1 / 3),
        default=1e-3,
        show_default=True,
        help="Hardness of the problem: the smaller, the longer gradient descent takes.",
    )
    def demo(out: Path, mu: float) -> None:
        """Run the five methods and SciPy's L-BFGS-B on a worst-case function."""
        from momentous.demo import run_demo

        run_demo(out, mu)

    @momentous.command()
    def methods() -> None:
        """List the methods: what they are, need, guarantee and cost."""
        from rich.console import Console
        from rich.table import Table

        from momentous.methods import AUTO, REGISTRY

        table = Table(show_lines=True)
        for heading in ("name", "what it is", "needs", "guarantee", "an iteration"):
            table.add_column(heading)
        for name, cls in REGISTRY.items():
            shown = f"{name} (= auto)" if cls is AUTO else name
            table.add_row(shown, cls.summary, cls.needs, cls.guarantee, cls.cost)
        Console().print(table)

    return momentous


if __name__ == "__main__":
    main()
