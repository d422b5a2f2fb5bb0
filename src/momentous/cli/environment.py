"""The environment variables that matter to the commands, and what each is for.

docs/command-line.md has the table that ``python -m momentous.cli.environment`` prints.
"""

import click

PREFIX = "MOMENTOUS"

VARIABLES = {
    f"{PREFIX}_COMMAND_OPTION": "Any option of any command: `MOMENTOUS_FIT_RANK=20` is `momentous "
    "fit --rank 20`. A typed option wins.",
    f"{PREFIX}_DEBUG": "1: show the traceback of an error, as `--debug`.",
    f"_{PREFIX}_COMPLETE": "Set by the script of `momentous completion` while it asks for words.",
    "NUMBA_CACHE_DIR": "Where compiled kernels are kept; by default beside the package, or in the "
    "user's cache folder where that cannot be written.",
    "NUMBA_CPU_NAME": "`generic`: kernels that all machines of a cluster can share by one cache.",
    "CUPY_CACHE_DIR": "Where kernels for the GPU are kept; by default `~/.cupy/kernel_cache`.",
    "OMP_NUM_THREADS": "Threads of NumPy's and PyTorch's own routines; of the compiled kernels "
    "`--threads`. With OpenBLAS also `OPENBLAS_NUM_THREADS`.",
    "XDG_CACHE_HOME": "The folder under which `momentous data fetch` keeps what it downloads; by "
    "default `~/.cache`.",
    "TMPDIR": "Where unpacked copies of compressed files, and of pipes, stand while they are read.",
    "WORLD_SIZE, RANK, LOCAL_RANK": "Set by torchrun: the process is one of several ranks "
    "(docs/cluster.md). mpirun and srun set variables of their own.",
    f"{PREFIX}_SETUP_TIMEOUT": "Seconds that ranks under torchrun wait for each other to begin; by "
    "default 60.",
    "NO_COLOR": "1: no colours in tables and bars.",
}


def name_variables(command: click.Command, prefix: str) -> None:
    """Let options be set under the names that are typed, also where the code has others."""
    for option in command.params:
        if isinstance(option, click.Option):
            typed = max(option.opts, key=len).lstrip("-").replace("-", "_")
            option.envvar = f"{prefix}_{typed}".upper()
    for name, inner in getattr(command, "commands", {}).items():
        name_variables(inner, f"{prefix}_{name}")


def variables_table() -> str:
    """The table in Markdown."""
    rows = ["| variable | meaning |", "|---|---|"]
    for names, text in VARIABLES.items():
        shown = ", ".join(f"`{name}`" for name in names.split(", "))
        rows.append(f"| {shown} | {text} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(variables_table())
