"""The layers of the package, held by its import statements; sizes; what a cheap command loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import require

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = require.REPO / "gpudiag"
SOURCES = sorted(PACKAGE.rglob("*.py"))

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60

# Modules that lie directly in gpudiag/ (the public functions, configuration): between the cli and
# the layers. gpudiag.errors and gpudiag.__version__ are for everyone.
TOP = "(top)"
LAYERS = {"cli", "report", "check", "analyze", "trace", "collect", "hardware", "model", "engine"}
MAY_IMPORT: dict[str, set[str]] = {
    "cli": LAYERS | {TOP},
    TOP: LAYERS - {"cli"} | {TOP},
    "report": {"report", "model"},
    "check": {"check", "model"},
    "analyze": {"analyze", "hardware", "model"},
    "engine": {"engine", "trace", "analyze", "hardware", "model"},
    "trace": {"trace", "hardware", "model"},
    "collect": {"collect", "hardware", "model"},
    "hardware": {"hardware", "model"},
    "model": {"model"},
}

# Third-party module -> the files that may import it, relative to gpudiag/.
FENCES: dict[str, tuple[str, ...]] = {
    "pynvml": ("collect/nvml.py",),
    "plotly": ("report/html.py", "report/html_*.py", "report/html/*.py"),
    "rich": ("report/terminal.py", "report/terminal/*.py", "cli/*.py"),
    "typer": ("cli/*.py",),
    "torch": ("collect/inject/*.py",),
    "dask": ("engine.py", "*/engine.py"),
    "distributed": ("engine.py", "*/engine.py"),
    "pandas": ("frames.py", "*/frames.py"),
}
# Runs inside the user's training process: the standard library, and the torch that is there.
BOOTSTRAP = FENCES["torch"]
# What it may import besides: sitecustomize.py hands over to the user's own of that name.
CHAINED = "sitecustomize"
# Loaded by path into processes that have no gpudiag: what belongs to it can't be in other files.
ONE_FILE = "collect/inject/_gpudiag_inject.py"
MAX_LINES = {ONE_FILE: 1700}

# What `gpudiag --help` must not wait for.
HEAVY = ("numpy", "pandas", "plotly", "rich", "pyarrow", "torch", "dask", "msgspec", "psutil")


def imports(tree: ast.Module, module: str) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything imported anywhere in a module, lazily or not."""
    package = module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"}:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value


def called_name(node: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    function = node.func
    return getattr(function, "attr", getattr(function, "id", ""))


def layer_of(dotted: str) -> str | None:
    """Return the layer that a name of gpudiag belongs to; None for what everyone may import."""
    parts = dotted.split(".")
    if len(parts) == 1 or parts[1] in {"errors", "__version__"}:
        return None
    return parts[1] if parts[1] in LAYERS else TOP


def may_import(path: str, name: str) -> bool:
    """Tell whether a file, named relative to gpudiag/, may import a dotted name."""
    root = name.split(".", maxsplit=1)[0]
    if any(fnmatch(path, pattern) for pattern in BOOTSTRAP):
        return root in {"torch", CHAINED} or root in sys.stdlib_module_names
    if root != "gpudiag":
        return root not in FENCES or any(fnmatch(path, pattern) for pattern in FENCES[root])
    folder = "cli" if path == "__main__.py" else path.split("/", maxsplit=1)[0]
    layer = folder if folder in LAYERS else TOP
    target = layer_of(name)
    return target is None or target in MAY_IMPORT[layer]


def import_offences(source: str, path: str) -> list[str]:
    """Return the imports that break an arrow or a fence, one line each."""
    module = "gpudiag." + path.removesuffix(".py").replace("/", ".")
    found = imports(ast.parse(source), module)
    return [f"{path}:{line} imports {name}" for line, name in found if not may_import(path, name)]


def long_functions(source: str, path: str) -> list[str]:
    """Return the functions whose body is over the limit.

    Signatures are left out: those of commands declare every option with its help.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, functions)]
    sizes = {
        f"{path}:{n.lineno} {n.name}": (n.end_lineno or 0) - n.body[0].lineno + 1 for n in found
    }
    return [f"{name}: {size} lines" for name, size in sizes.items() if size > MAX_FUNCTION_LINES]


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_imports_follow_the_layers_and_keep_to_the_fences():
    offences = [o for p in SOURCES for o in import_offences(p.read_text(), relative(p))]
    assert offences == []


def test_every_folder_of_the_package_is_a_known_layer():
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert folders <= LAYERS


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("trace/kineto.py", "from gpudiag.collect import run"),
        ("collect/run.py", "import gpudiag.trace.job"),
        ("analyze/gaps.py", "from gpudiag.trace.times import parse"),
        ("analyze/gaps.py", "from gpudiag import trace"),
        ("analyze/gaps.py", "from ..trace import times"),
        ("analyze/gaps.py", "def f():\n    from gpudiag.report import totals"),
        ("analyze/gaps.py", "import importlib\nimportlib.import_module('gpudiag.report')"),
        ("report/view.py", "from gpudiag.analyze.gaps import Gap"),
        ("report/view.py", "from gpudiag.config import Config"),
        ("report/view.py", "from gpudiag import load"),
        ("check/verdict.py", "from gpudiag.report.totals import totals"),
        ("model/job.py", "from gpudiag.hardware import peaks"),
        ("config.py", "from gpudiag.cli import main"),
        ("model/format.py", "from rich.text import Text"),
        ("collect/sampler.py", "import pynvml"),
        ("trace/read.py", "import pandas as pd"),
        ("analyze/rank.py", "import torch"),
        ("collect/inject/_gpudiag_inject.py", "from gpudiag.errors import LaunchError"),
        ("collect/inject/__init__.py", "import numpy"),
        ("collect/injection.py", "import torch"),
    ],
)
def test_the_checker_sees_what_breaks_a_rule(path, line):
    assert import_offences(line, path)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("trace/kineto.py", "from gpudiag.errors import InputError"),
        ("report/json.py", "from gpudiag import __version__"),
        ("report/view.py", "from .format import share"),
        ("report/terminal/table.py", "from rich.table import Table"),
        ("cli/analyze.py", "from gpudiag.analyze import analyze"),
        ("config.py", "from gpudiag.model.job import Job"),
        ("collect/inject/_gpudiag_inject.py", "import json, torch.profiler"),
        ("collect/nvml.py", "import pynvml"),
        ("trace/frames.py", "import pandas as pd"),
    ],
)
def test_the_checker_lets_pass_what_keeps_the_rules(path, line):
    assert import_offences(line, path) == []


def test_modules_are_short_enough_to_read_in_one_sitting():
    sizes = {relative(p): len(p.read_text().splitlines()) for p in SOURCES}
    assert {n: s for n, s in sizes.items() if s > MAX_LINES.get(n, MAX_MODULE_LINES)} == {}


def test_functions_are_short_enough_to_see_at_once():
    assert [f for p in SOURCES for f in long_functions(p.read_text(), relative(p))] == []


def test_the_checker_counts_a_body_over_the_limit_wherever_the_function_is():
    body = "\n".join("    pass" for _ in range(MAX_FUNCTION_LINES))
    assert long_functions(f"class A:\n  def f():\n{body}\n    pass", "x.py")
    assert not long_functions(f"def f(\n    a,\n    b,\n):\n{body}", "x.py")


def loaded_by(program: str) -> set[str]:
    """Run a program; return the top-level modules that it loaded."""
    ending = "\nimport sys as s; print('\\n', *{m.split('.')[0] for m in s.modules}, file=s.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", program + ending], capture_output=True, text=True, check=True
    )
    return set(result.stderr.splitlines()[-1].split())


def command(*arguments: str) -> str:
    """Return a program that runs gpudiag in its own interpreter and goes on after it."""
    return f"""
import sys
sys.argv = {["gpudiag", *arguments]}
from gpudiag.cli.main import main
try:
    sys.exit(main())
except SystemExit as end:
    assert not end.code, end.code
"""


@pytest.mark.parametrize(
    "program",
    ["import gpudiag", "import gpudiag.cli.main", command("--help"), command("--version")],
    ids=["import gpudiag", "import the cli", "--help", "--version"],
)
def test_a_cheap_command_loads_nothing_heavy(program):
    assert loaded_by(program) & set(HEAVY) == set()
