"""Imports go one way, public names are public, docstrings run.

A rule is one test, which names every place that breaks it.
"""

import ast
import doctest
import graphlib
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import momentous
from momentous import api, lazy
from momentous.methods.registry import REGISTRY

ROOT = Path(momentous.__file__).parent

# From the bottom to the top: a module imports from lower floors and from its own room.  A room is a
# package or a module, named by its path; of two that fit, the longer name counts.
FLOORS = [
    {"io", "lazy", "version"},
    {"core"},
    {"distributed"},
    {"methods", "testbed"},
    {"display"},
    {"scipy_options"},
    {"certify", "api"},
    {"torch", "jax"},
    {"lanes"},
    {"lowrank.checks"},
    {"lowrank.data"},
    {"lowrank.losses", "lowrank.penalty", "lowrank.factors"},
    {"lowrank.backends"},
    {"lowrank.ranks", "lowrank.options", "lowrank.priors"},
    {"lowrank.objective"},
    {"lowrank.solvers"},
    {"lowrank.model"},
    {"lowrank.estimators"},
    {"lowrank"},
    {"lab"},
    {"lab.compare", "lab.paper"},  # a figure of the paper does not load the scoreboard
    {"lab.report"},
    {"lab.studies"},
    {""},  # momentous itself, whose names come from everywhere
    {"cli"},
    {"__main__"},
]
ROOMS = {name: number for number, names in enumerate(FLOORS) for name in names}

ALWAYS_THERE = {"numpy", "scipy", "array_api_compat", "momentous", *sys.stdlib_module_names}
# What stands at the top of the files of some rooms beside the packages that are always there.
ALSO_THERE = {"cli": {"click"}, "torch": {"torch"}, "jax": {"jax", "equinox", "optimistix"}}


def module_name(path: Path) -> str:
    """The name of a module without "momentous."; "" is momentous itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(name: str) -> str | None:
    """The longest name of a room that a module is in."""
    parts = name.split(".") if name else []
    prefixes = [".".join(parts[:k]) for k in range(len(parts), 0, -1)] or [""]
    return next((prefix for prefix in prefixes if prefix in ROOMS), None)


FILES = sorted(ROOT.rglob("*.py"))
MODULES = {module_name(path): path for path in FILES}


def imports(path: Path):
    """The modules that a file imports anywhere in it, by their full names."""
    package = ("momentous", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            for alias in node.names:  # the name may be a module itself
                inner = f"{module}.{alias.name}"
                yield inner if inner.partition(".")[2] in MODULES else module


def test_every_module_is_in_a_room():
    assert [name for name in MODULES if room(name) is None] == []


def test_imports_go_down_only():
    upward = []
    for module, path in MODULES.items():
        here = room(module)
        for name in imports(path):
            if name.split(".")[0] == "momentous":
                there = room(name.partition(".")[2])
                if there != here and ROOMS[there] >= ROOMS[here]:
                    upward.append(f"{module} imports {name}")
    assert upward == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        name: {
            other
            for full in imports(path)
            if full.split(".")[0] == "momentous" and (other := full.partition(".")[2]) != name
        }
        for name, path in MODULES.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def imports_at_the_top(path: Path):
    """The packages that a file imports when it is imported itself, its own apart."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


def test_optional_packages_are_imported_only_where_they_are_used():
    """At the top of a file stand only the three packages that everybody has installed."""
    optional = {
        module: others
        for module, path in MODULES.items()
        if (
            others := {*imports_at_the_top(path)}
            - ALWAYS_THERE
            - ALSO_THERE.get(room(module), set())
        )
    }
    assert optional == {}


def test_any_folders_of_tests_can_be_collected_together():
    """There are several modules called conftest, and the one found first hides the others."""
    tests = Path(__file__).parent.rglob("*.py")
    importing = [
        path for path in tests if re.search(r"^(from|import) conftest", path.read_text(), re.M)
    ]
    assert importing == []


def loaded_after(code: str) -> set[str]:
    """The modules that are there after a program, in an interpreter of its own."""
    program = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


EXTRAS = {"matplotlib", "click", "rich", "torch", "jax", "numba", "sklearn", "pyarrow", "cupy",
          "duckdb", "plotly", "jinja2", "pandas", "polars"}  # fmt: skip


@pytest.mark.slow
def test_the_tests_run_where_a_plugin_for_benchmarks_warns_at_its_start(tmp_path):
    # pytest-benchmark does so when it sees pytest-xdist; this stands for it.
    (tmp_path / "warns.py").write_text(
        "import warnings\ndef pytest_configure(config): warnings.warn('no benchmarks')\n"
    )
    facts = tmp_path / "warns-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: warns\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[pytest11]\nbenchmark = warns\n")
    (tmp_path / "test_one.py").write_text("def test_nothing(): pass\n")
    project = Path(__file__).parents[1] / "pyproject.toml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", project, "."]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_importing_momentous_imports_nothing_else():
    loaded = loaded_after("import momentous")
    ours = {name for name in loaded if name.startswith("momentous")}
    assert ours == {"momentous", "momentous.lazy", "momentous.version"}
    assert not loaded & {"numpy", "scipy", "array_api_compat", *EXTRAS}


def test_minimize_needs_neither_the_extras_nor_the_laboratory():
    loaded = loaded_after("from momentous import minimize")
    assert "numpy" in loaded
    assert not loaded & {"scipy.optimize", *EXTRAS}
    assert not any(name.startswith(("momentous.lab", "momentous.lowrank")) for name in loaded)


def test_a_figure_of_the_paper_does_not_load_the_scoreboard():
    loaded = loaded_after("import momentous.lab.studies")
    assert "momentous.lab.paper.plan" in loaded
    assert not any(name.startswith("momentous.lab.compare") for name in loaded)


# --- names ----------------------------------------------------------------------------------------

PROMISED = [
    "minimize", "iterate", "certify", "Checkpoint", "testbed", "RAGD", "RHB", "AdaRAGD", "AdaRHB",
    "Result", "Status", "Trace", "GradientNorm", "Evaluations", "Iterations", "WallTime", "Target",
    "Stagnation", "Method", "Rule", "Oracle", "CheckpointError", "compare", "Comparison",
    "accelerate", "register_method",
]  # fmt: skip


def test_public_names_are_importable_from_the_top():
    assert [name for name in PROMISED if not hasattr(momentous, name)] == []
    assert {*PROMISED} <= {*momentous.__all__}


def test_everything_in_all_exists_and_is_sorted_out():
    assert all(hasattr(momentous, name) for name in momentous.__all__)
    assert len(set(momentous.__all__)) == len(momentous.__all__)
    assert not any(name.startswith("_") for name in momentous.__all__)


def test_certify_is_the_function_whatever_was_imported_before():
    importlib.import_module("momentous.certify")
    assert inspect.isfunction(momentous.certify)


def test_everything_public_has_a_docstring():
    for name in momentous.__all__:
        thing = getattr(momentous, name)
        text = inspect.getdoc(thing)
        assert text, name
        if inspect.isclass(thing):
            assert thing.__doc__, f"{name} has only the docstring of its parent"
            assert not text.startswith(f"{name}("), f"{name} has only a generated docstring"


def test_every_file_says_what_it_is():
    silent = [
        name for name, path in MODULES.items() if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_every_module_can_be_imported():
    """Those of the rooms of other libraries where these are installed."""
    for name in MODULES:
        packages = ALSO_THERE.get(room(name), set())
        if not name.endswith("__main__") and all(map(importlib.util.find_spec, packages)):
            importlib.import_module(f"momentous.{name}".removesuffix("."))


def names_in_stub(path: Path) -> dict[str, str]:
    """The module of every name in a stub, as a parser of Python reads it."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    found |= names_in_stub(ROOT / node.module.split(".")[-1] / "__init__.pyi")
                else:
                    assert alias.name == alias.asname
                    found[alias.name] = node.module
    return found


@pytest.mark.parametrize("package", ["momentous", "momentous.lowrank", "momentous.methods"])
def test_the_names_for_editors_are_those_that_are_loaded_when_used(package):
    package = importlib.import_module(package)
    shown = names_in_stub(Path(package.__file__).with_suffix(".pyi"))
    assert shown == lazy.names(package.__name__, package.__spec__)
    rooms = {name for name, module in shown.items() if module == package.__name__}
    assert {*package.__all__} == {*shown} - rooms - {"__version__"} | {"testbed"} & rooms
    for name, module in shown.items():
        if name in ("jax", "torch") and importlib.util.find_spec(name) is None:
            continue
        there = importlib.import_module(f"momentous.{name}" if name in rooms else module)
        assert getattr(package, name) is (there if name in rooms else getattr(there, name))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        momentous.nonsense  # noqa: B018
    assert not hasattr(momentous, "nonsense")


# --- methods --------------------------------------------------------------------------------------


def test_every_method_names_its_paper_and_algorithm():
    for name, cls in REGISTRY.items():
        assert cls.__doc__, name
        text, _, references = inspect.getdoc(cls).partition("References")
        assert re.search(r"\b(19|20)\d\d\b", references), f"{name}: no reference with a year"
        if re.search(r"JMLR 24 \(2023\)", references.split("[2]")[0]):
            assert re.search(r"(Algorithm|Theorem) \d", text + references), name


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
        and thing not in (momentous.Method, momentous.Rule)
    }
    assert public == set(REGISTRY.values())
    assert [cls.__name__ for cls in REGISTRY.values()] == momentous.methods.__all__
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


def test_only_sources_call_user_code():
    """Nobody else in core and methods knows fun and jac."""
    for path in [*(ROOT / "core").rglob("*.py"), *(ROOT / "methods").rglob("*.py")]:
        if path.name in ("admission.py", "sources.py", "jax_autodiff.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert name not in ("fun", "jac"), f"{path.name}:{node.lineno}"


# --- examples -------------------------------------------------------------------------------------


def test_the_examples_in_docstrings_run():
    results = doctest.testmod(api, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted >= 8
    assert results.failed == 0
