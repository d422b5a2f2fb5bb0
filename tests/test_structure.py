"""The walls of the house stand: imports go down only, public names are public, docstrings run."""

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import momentous
from momentous import api
from momentous.methods import REGISTRY

ROOT = Path(momentous.__file__).parent

# From the bottom to the top: a file imports from lower floors, and from its own room.  What is not
# named here stands on top and is imported by nobody below.
FLOORS = [
    {"io", "version"},
    {"core"},
    {"methods", "testbed"},
    {"certify", "api"},
    {"lowrank"},
    {"comparison"},
    {"reproduce"},
    {""},
]
TOP = len(FLOORS)


def room(path: Path) -> str:
    """The package or the module right under momentous; "" is momentous itself."""
    first = path.relative_to(ROOT).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def floor(name: str) -> int:
    return next((i for i, rooms in enumerate(FLOORS) if name in rooms), TOP)


def imports(path: Path):
    """The modules that a file imports anywhere in it, by their full names."""
    package = ("momentous", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            if module == "momentous":
                yield from (f"momentous.{alias.name}" for alias in node.names)
            else:
                yield module


FILES = sorted(ROOT.rglob("*.py"))
LIBRARY_FILES = [path for path in FILES if floor(room(path)) < TOP]


def each(files):
    return pytest.mark.parametrize("path", files, ids=lambda p: str(p.relative_to(ROOT)))


@each(LIBRARY_FILES)
def test_imports_go_down_only(path):
    here = room(path)
    for name in imports(path):
        if name.split(".")[0] == "momentous":
            there = (*name.split("."), "")[1]
            assert there == here or floor(there) < floor(here), f"imports {name}"


def test_the_rooms_that_are_known_are_there():
    rooms = {"core", "methods", "testbed", "lowrank", "comparison", "reproduce", "api", ""}
    assert rooms <= {room(path) for path in FILES}


ALWAYS_THERE = {"numpy", "scipy", "array_api_compat", "momentous", *sys.stdlib_module_names}


@each(LIBRARY_FILES)
def test_optional_packages_are_imported_only_where_they_are_used(path):
    """At the top of a file stand only the three packages that everybody has installed.

    Commands may have click there: only `cli` imports them, after it has looked for click.
    """
    there = ALWAYS_THERE | ({"click"} if path.name == "commands.py" else set())
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= there


@each([path for path in FILES if path.name != "cli.py"])
def test_nobody_but_the_command_line_imports_commands(path):
    assert not [name for name in imports(path) if re.fullmatch(r"momentous\..*\.commands", name)]


def test_importing_momentous_imports_nothing_heavy():
    heavy = ["scipy.optimize", "matplotlib", "click", "rich", "torch", "jax", "numba", "sklearn",
             "pyarrow", "cupy", "momentous.lowrank"]  # fmt: skip
    code = f"import sys, momentous; print([n for n in {heavy} if n in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(ROOT.parent)}
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert told.stdout.strip() == "[]"


# --- names ----------------------------------------------------------------------------------------

PROMISED = [
    "minimize", "iterate", "certify", "Checkpoint", "testbed", "RAGD", "RHB", "PerturbedRAGD",
    "AdaRAGD", "AdaRHB", "Result", "Status", "Trace", "GradientNorm", "Evaluations", "Iterations",
    "WallTime", "Target", "Stagnation", "Method", "Oracle", "CheckpointError",
    "Safeguarded", "LBFGS", "UniversalHeavyBall", "ParameterFreeAGD", "JinAGD", "ConvexUntilGuilty",
    "GradientDescent", "HeuristicAGD", "ConjugateGradient", "compare", "Comparison",
    "accelerate",
]  # fmt: skip


@pytest.mark.parametrize("name", PROMISED)
def test_public_names_are_importable_from_the_top(name):
    assert hasattr(momentous, name)
    assert name in momentous.__all__


def test_everything_in_all_exists_and_is_sorted_out():
    assert all(hasattr(momentous, name) for name in momentous.__all__)
    assert len(set(momentous.__all__)) == len(momentous.__all__)
    assert not any(name.startswith("_") for name in momentous.__all__)


def test_certify_is_the_function():
    assert callable(momentous.certify)


def test_everything_public_has_a_docstring():
    for name in momentous.__all__:
        thing = getattr(momentous, name)
        text = inspect.getdoc(thing)
        assert text, name
        if inspect.isclass(thing):
            assert thing.__doc__, f"{name} has only the docstring of its parent"
            assert not text.startswith(f"{name}("), f"{name} has only a generated docstring"


@each(FILES)
def test_every_file_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_every_module_can_be_imported_alone():
    for module in pkgutil.walk_packages([str(ROOT)], "momentous."):
        if floor(module.name.split(".")[1]) < TOP:
            importlib.import_module(module.name)


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=lambda c: c.name)
def test_every_method_names_its_paper_and_algorithm(cls):
    text = inspect.getdoc(cls)
    assert cls.__doc__
    assert "References" in text
    assert re.search(r"\b(19|20)\d\d\b", text.split("References")[1])
    if re.search(r"JMLR 24 \(2023\)", text.split("References")[1].split("[2]")[0]):
        assert re.search(r"(Algorithm|Theorem) \d", text)


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=lambda c: c.name)
def test_methods_are_values(cls):
    """Equal parameters, equal methods; and nobody changes them."""
    names = ("step_size", "gradient_lipschitz", "curvature", "shortest_round")
    name = next(name for name in names if name in cls().parameters())
    one, other = (7, 8) if name == "shortest_round" else (0.5, 0.25)
    assert cls(**{name: one}) == cls(**{name: one}) != cls(**{name: other})
    with pytest.raises(AttributeError):
        setattr(cls(), name, 1.0)
    assert hash(cls()) == hash(cls())
    assert cls(**cls(**{name: one}).parameters()) == cls(**{name: one})


def test_the_registry_knows_every_public_method():
    public = {
        thing
        for name in momentous.__all__
        if inspect.isclass(thing := getattr(momentous, name))
        and issubclass(thing, momentous.Method)
        and thing is not momentous.Method
    }
    assert public == set(REGISTRY.values())
    assert all(cls.name == name for name, cls in REGISTRY.items())


def test_methods_neither_print_nor_time_nor_loop_over_iterations():
    for path in (ROOT / "methods").rglob("*.py"):
        tree = ast.parse(path.read_text())
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "print" not in called, path.name
        assert not {"time", "logging"} & set(imports(path)), path.name
        assert not any(isinstance(node, ast.While) for node in ast.walk(tree)), path.name


def test_only_the_oracle_calls_user_code():
    """Nobody else in core and methods knows fun and jac."""
    for path in [*(ROOT / "core").rglob("*.py"), *(ROOT / "methods").rglob("*.py")]:
        if path.parent.name == "oracle":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert name not in ("fun", "jac"), f"{path.name}:{node.lineno}"


def test_no_file_is_long():
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 500, path.name


def test_the_architecture_has_a_row_for_every_file_of_the_reproduction():
    told = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    rows = "".join(line for line in told.splitlines() if line.startswith("| `reproduce/"))
    names = re.findall(r"`(?:reproduce/)?([\w.]+)`", rows)
    here = [p for p in (ROOT / "reproduce").rglob("*.*") if p.suffix not in (".pyc", "")]
    assert sorted(names) == sorted(p.name for p in here if p.name != "__init__.py")


# --- examples -------------------------------------------------------------------------------------


def test_the_examples_in_docstrings_run():
    results = doctest.testmod(api, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted >= 8
    assert results.failed == 0
