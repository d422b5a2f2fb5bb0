"""``python -m momentous`` is the ``momentous`` command."""

from momentous.cli import main

main()
