"""The documentation says what the program does: generated parts, options, settings, links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from statistics import mean

import pytest
import require
from cli.tiny import gpudiag, write_trace

from gpudiag.config import KNOWN, variable_name

DOCS = require.REPO / "docs"
PAGES = sorted(
    [
        *DOCS.glob("*.md"),
        *DOCS.glob("*/*.md"),
        require.REPO / "README.md",
        require.REPO / "CHANGELOG.md",
    ]
)


def test_generated_parts_are_up_to_date():
    """findings.md is the catalogue, and the README's capture is what is printed today."""
    command = [sys.executable, str(DOCS / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", [[], ["analyze"], ["mfu"], ["explain"], ["doctor"], ["config", "show"]]
)
def test_every_option_is_in_the_reference(command):
    """cli.md has each option that --help has."""
    page = (DOCS / "reference" / "cli.md").read_text()
    options = re.findall(r"(?<![\w-])--[a-z][a-z-]+", gpudiag(*command, "--help").stdout)
    assert options
    assert not [option for option in options if option not in page]


@pytest.mark.parametrize(
    "command", [[], ["analyze"], ["mfu"], ["explain"], ["doctor"], ["config", "show"]]
)
def test_help_fits_a_terminal_of_80_columns(command):
    """Examples, which aren't wrapped, too."""
    shown = gpudiag(*command, "--help", env=os.environ | {"COLUMNS": "80"}).stdout
    assert shown
    assert not [line for line in shown.splitlines() if len(line) > 80]


def test_every_setting_is_in_the_reference():
    """configuration.md has each key and its variable."""
    page = (DOCS / "reference" / "configuration.md").read_text()
    assert not [name for name in KNOWN if f"`{name}`" not in page]
    assert not [name for name in KNOWN if f"`{variable_name(name)}`" not in page]


def test_every_json_key_is_in_the_reference(tmp_path):
    """json.md names each key that is written, but for bucket names and rank numbers."""
    page = (DOCS / "reference" / "json.md").read_text()
    data = json.loads(gpudiag("analyze", write_trace(tmp_path / "t.json"), "--json").stdout)
    assert not [key for key in _keys(data) if f'"{key}"' not in page and "." not in key]


def _keys(value):
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _keys(one)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Every relative link is a file in the repository."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_tutorial_s_script_records_what_it_promises(tmp_path, ranks):
    """Four periods per rank on any machine, started as the tutorial starts it."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(re.search(r"<!-- train.py -->\n```python\n(.*?)```", page, re.DOTALL)[1])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *(launcher if ranks > 1 else []), str(script)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    shown = gpudiag("analyze", tmp_path / "traces")
    assert shown.returncode == 0, shown.stderr
    data = json.loads(gpudiag("analyze", tmp_path / "traces", "--json").stdout)
    assert [len(one["host_steps_ns"]) for one in data["ranks"]] == [4] * ranks


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_the_tutorial_s_late_rank_is_found_though_all_steps_are_as_long(tmp_path):
    """200 ms in the backward of one rank of four: only matching shows whose."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    parts = {
        name: re.search(rf"<!-- {name} -->\n```python\n(.*?)```", page, re.DOTALL)[1]
        for name in ("train.py", "late")
    }
    before = "        loss.backward()\n"
    text = "import time\n" + parts["train.py"].replace(before, parts["late"] + before)
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "4", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    data = json.loads(gpudiag("analyze", tmp_path / "traces", "--json").stdout)
    steps = [mean(one["host_steps_ns"]) for one in data["ranks"]]
    assert min(steps) > 200e6
    assert max(steps) - min(steps) < 200e6 / 5  # the jitter of a busy machine, not the fault
    lead = data["findings"][0]
    assert (lead["id"], lead["ranks"], lead["affected"]) == ("straggler", [1], [0, 1, 2, 3])


def test_the_capture_is_what_the_two_commands_show():
    """The README runs the sample that it shows."""
    readme = (require.REPO / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ gpudiag analyze (\S+)", readme)[1]
    assert f".venv/bin/gpudiag analyze {shown}\n" in readme
