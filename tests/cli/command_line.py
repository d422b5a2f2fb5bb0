"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def momentous(*arguments: object, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python -m momentous``; ``env`` is added to the environment."""
    command = [sys.executable, "-m", "momentous", *(str(each) for each in arguments)]
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, **options
    )
