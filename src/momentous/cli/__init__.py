"""The command line: one file per command, imported only when that command is run."""

import sys

from momentous.cli.process import INTERRUPTED, end_like_ctrl_c, prepare_streams


def main() -> None:
    """Entry point of the ``momentous`` command."""
    try:
        prepare_streams()
        end_like_ctrl_c()
        from momentous.io.optional import require

        try:
            require("click", "app", "the command line")
        except ModuleNotFoundError as error:
            sys.exit(str(error))
        from momentous.cli.app import momentous

        momentous(prog_name="momentous")
    except KeyboardInterrupt:  # while modules are imported; later `cli.terminal` sees it
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
