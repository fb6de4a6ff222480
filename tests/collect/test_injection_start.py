"""What the hooks change about Python's start: nothing that a program can see."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import injected
import pytest
import require

from gpudiag.collect.injection import Profile, inject
from gpudiag.errors import LaunchError

SOURCES = require.REPO / "gpudiag" / "collect" / "inject"
LOOK = """
    import sys
    print([p for p in sys.path])
    print(sorted(set(sys.modules) - {"_gpudiag_inject"}))
    print(sorted(sys.path_importer_cache))
"""
# Needs no torch: the hooks are loaded by anything of that name.
HOOKED = """
    import sys
    try:
        import torch
    except ImportError:
        pass
    print("_gpudiag_inject" in sys.modules)
"""


def test_a_program_sees_the_path_and_the_modules_that_it_would_have_seen(tmp_path):
    bare = injected.run(tmp_path, LOOK, bare=True)
    assert injected.run(tmp_path, LOOK).out == bare.out
    own = {"PYTHONPATH": str(tmp_path)}
    bare = injected.run(tmp_path, LOOK, bare=True, environment=own)
    assert injected.run(tmp_path, LOOK, environment=own).out == bare.out


@pytest.mark.parametrize(
    "own",
    [
        "import sys; sys.own = 'seen'",
        "raise ValueError('mine')",
        "import no_such_module",
        "import sys; sys.stderr.write(__file__ + __name__)",
    ],
)
def test_the_users_own_sitecustomize_runs_as_ever(tmp_path, own):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(own)
    program = "import sys; print(getattr(sys, 'own', None), 'sitecustomize' in sys.modules)"
    path = {"PYTHONPATH": str(folder)}
    bare = injected.run(tmp_path, program, bare=True, environment=path)
    done = injected.run(tmp_path, program, environment=path)
    assert (done.code, done.out, done.err) == (bare.code, bare.out, bare.err)


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        ((), True),
        (("-s", "-P", "-O", "-B"), True),
        (("-E",), False),
        (("-I",), False),
        (("-S",), False),
    ],
)
def test_the_first_layer_reaches_what_reads_pythonpath(tmp_path, flags, seen):
    """Where gpudiag's wheel is installed, its second layer reaches -E and -I too."""
    installed = (Path(sysconfig.get_path("purelib")) / "gpudiag_inject.pth").exists()
    seen = seen or (installed and flags in {("-E",), ("-I",)})
    done = injected.run(tmp_path, HOOKED, before=flags)
    assert (done.code, done.out.strip()) == (0, str(seen))
    assert (done.logs, done.traces, done.failures()) == ([], [], "")


def test_the_wheel_brings_a_second_layer_for_interpreters_that_ignore_pythonpath(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    build = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((require.REPO / name).read_bytes())
    (source / "gpudiag").symlink_to(require.REPO / "gpudiag")
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True
    )
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "torch.py").write_text("")
    for flags, seen in {"-E": True, "-I": True, "-B": True, "-S": False}.items():
        program = HOOKED + "    print(sum('_gpudiag' in str(f) for f in sys.meta_path))\n"
        done = injected.run(
            tmp_path, program, before=(flags,), python=str(tmp_path / "venv/bin/python")
        )
        assert done.out.split() == [str(seen), "1" if seen else "0"], (flags, done.err)
    look = injected.run(tmp_path, LOOK, python=str(tmp_path / "venv/bin/python"))
    bare = injected.run(tmp_path, LOOK, python=str(tmp_path / "venv/bin/python"), bare=True)
    assert look.out == bare.out


@pytest.mark.parametrize("broken", ["sitecustomize.py", "_gpudiag_inject.py", "config.json"])
def test_a_broken_hook_file_breaks_no_program(tmp_path, broken):
    variables = dict(os.environ) | inject(tmp_path / "run", {}, Profile())
    if broken == "sitecustomize.py":
        (tmp_path / "run" / "inject" / broken).unlink()
    else:
        (tmp_path / "run" / "inject" / broken).write_text("{ nonsense")
    program = "import sys\ntry: import torch\nexcept ImportError: pass\nprint('ran')"
    result = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("ran\n", "")


def test_a_folder_that_pythonpath_cant_name_is_refused(tmp_path):
    with pytest.raises(LaunchError, match="':' in its path"):
        inject(tmp_path / "a:b", {}, Profile())
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="can't be written"):
        inject(tmp_path / "file", {}, Profile())


def test_pythonpath_gets_no_empty_entry_which_would_name_the_current_folder(tmp_path):
    for before in ({}, {"PYTHONPATH": ""}):
        assert inject(tmp_path, before, Profile())["PYTHONPATH"] == str(tmp_path / "inject")
    kept = inject(tmp_path, {"PYTHONPATH": "/a:/b"}, Profile())["PYTHONPATH"]
    assert kept == f"{tmp_path / 'inject'}:/a:/b"


@pytest.mark.parametrize("source", sorted(SOURCES.glob("*.py")), ids=lambda path: path.name)
def test_the_hooks_keep_to_python_3_8(source):
    ast.parse(source.read_text(encoding="ascii"), feature_version=(3, 8))


def test_a_module_with_an_odd_loader_is_imported_as_ever(tmp_path):
    """Loaders keep their type and their own exec_module; a reload and a second import work."""
    package = tmp_path / "lib" / "safetensors"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "torch.py").write_text("def save_file(tensors, filename, metadata=None): 'mine'\n")
    program = """
        import importlib, inspect, safetensors.torch as m
        print(type(m.__loader__).__name__, "exec_module" in vars(m.__loader__))
        print(m.save_file.__doc__, inspect.signature(m.save_file))
        print(hasattr(m.save_file, "__wrapped__"))
        print(inspect.getsource(m) != "", importlib.reload(m) is m)
        m.save_file({}, "nowhere")
    """
    done = injected.run(tmp_path, program, environment={"PYTHONPATH": str(package.parent)}).well()
    assert done.out.splitlines() == [
        "SourceFileLoader False",
        "mine (tensors, filename, metadata=None)",
        "True",
        "True True",
    ]
    assert done.logs == []  # it saves, but it doesn't train


def load_hooks(folder: Path):
    """Return the hooks as a module of this process; nothing of it is activated."""
    spec = importlib.util.spec_from_file_location("hooks", SOURCES / "_gpudiag_inject.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.STATE = module.State(str(folder / "inject"))
    return module


class Shaped:
    """Looks like a tensor."""

    def __init__(self, *shape: int, dtype: str = "torch.float32") -> None:
        self.shape, self.dtype = shape, dtype


IDS = Shaped(4, 128, dtype="torch.int64")


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (Shaped(8, 3, 32, 32), ([8, 3, 32, 32], 8, None)),
        ((Shaped(8, 3), Shaped(8, dtype="torch.int64")), ([8, 3], 8, None)),
        ({"labels": Shaped(9, 9), "input_ids": IDS}, ([4, 128], 4, 512)),
        ({"pixels": Shaped(2, 3)}, ([2, 3], 2, None)),
        ([[IDS], 1], ([4, 128], 4, 512)),
        (IDS, ([4, 128], 4, 512)),
        (Shaped(), (None, None, None)),
        ("text", (None, None, None)),
        ([], (None, None, None)),
        ({}, (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_samples_and_tokens_are_told_by_shapes_alone(tmp_path, batch, expected):
    assert load_hooks(tmp_path).measure(batch) == expected


@pytest.mark.parametrize("world", [65, 128, 1000, 16_384])
def test_of_many_ranks_a_sample_is_traced_that_meets_every_place_of_a_node(tmp_path, world):
    hooks = load_hooks(tmp_path)
    hooks.STATE.world = world
    traced = []
    for rank in range(world):
        hooks.STATE.rank = rank
        traced += [rank] if hooks.traced_rank() else []
    assert world // 512 <= len(traced) <= 64
    stride = -(-world // 64)
    assert len({rank % stride for rank in traced}) == min(stride, len(traced)) or stride > 64


def test_ranks_chosen_from_outside_are_traced(tmp_path):
    hooks = load_hooks(tmp_path)
    (tmp_path / "inject").mkdir()
    (tmp_path / "inject" / "ranks.json").write_text("[70, 3]")
    hooks.STATE.world = 128
    traced = []
    for rank in range(128):
        hooks.STATE.rank = rank
        traced += [rank] if hooks.traced_rank() else []
    assert traced == [3, 70]


@pytest.mark.parametrize(
    ("cuda", "set_before", "expected"),
    [("12.6", None, "1"), ("13.0", None, "1"), ("12.4", None, None), ("11.8", None, None),
     (None, None, None), ("12.8", "0", "0")],
)  # fmt: skip
def test_cupti_is_torn_down_only_where_that_doesnt_crash(
    tmp_path, monkeypatch, cuda, set_before, expected
):
    hooks = load_hooks(tmp_path)
    torch = type("torch", (), {"version": type("version", (), {"cuda": cuda})})
    monkeypatch.setattr(hooks, "torch_module", lambda: torch)
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    if set_before:
        monkeypatch.setenv("TEARDOWN_CUPTI", set_before)
    hooks.tear_cupti_down()
    assert os.environ.get("TEARDOWN_CUPTI") == expected
    monkeypatch.setenv("TEARDOWN_CUPTI", "")  # so that it is put back


class Optimizer:
    """Something that a weak reference can point at."""


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("A" * 10, 10),
        ("AB" * 10, 10),  # two optimizers a step
        ("DDDDDG" * 10, 10),  # a critic that steps five times as often
        ("GD" * 3 + "GDD" * 10, 13),
        ("L" * 5 + "S" * 40, 45),  # one optimizer, then another
        ("".join("abcdefghijklmnopqrst") * 6, 6),  # one per parameter
    ],
)
def test_the_rarest_optimizer_in_use_marks_the_steps(tmp_path, order, expected):
    hooks = load_hooks(tmp_path)
    optimizers = {name: Optimizer() for name in order}
    steps = 0
    for name in order:
        calls = hooks.calls_of(optimizers[name])
        hooks.STATE.calls += 1
        calls.count += 1
        calls.last = hooks.STATE.calls
        steps += hooks.marks_step(calls)
    # Online only, to drive the profiler: it may take a while to find out.
    assert abs(steps - expected) <= 20 if "L" in order else abs(steps - expected) <= 5
