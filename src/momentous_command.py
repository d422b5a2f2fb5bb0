"""The ``momentous`` command, ready for Ctrl-C before the library is imported.

A module beside the package, because to import any module in it is to import all of it first.
"""

import sys


def main() -> None:
    """Entry point of the ``momentous`` command."""
    try:
        from momentous.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
