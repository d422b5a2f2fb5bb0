"""``momentous methods``."""

import click


@click.command()
def command() -> None:
    """List the methods: what they are, need, guarantee and cost."""
    from momentous.lab.progress import new_console, new_table
    from momentous.methods.registry import AUTO, REGISTRY, requirements

    headings = ("name", "what it is", "needs", "guarantee", "cost per iteration")
    table = new_table(*headings, show_lines=True)
    for name, cls in REGISTRY.items():
        shown = f"{name} (= auto)" if cls is AUTO else name
        table.add_row(shown, cls.summary, requirements(cls), cls.guarantee, cls.cost)
    new_console().print(table)
