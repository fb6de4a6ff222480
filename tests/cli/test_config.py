"""Settings: who beats whom, what is refused, and what ``config show`` says of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli.tiny import gpudiag, write_trace

from gpudiag.config import KNOWN, load_config
from gpudiag.errors import UsageError


@pytest.fixture
def project(tmp_path):
    """A project with a configuration, and a folder deep inside it."""
    inner = tmp_path / "src" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gpudiag]\ntop = 7\nwindow = "all"\nfail-on = ["error"]\n'
        '[tool.gpudiag.spans]\ncheckpoint = ["my_save.*"]\n'
    )
    return inner


def test_flag_beats_environment_beats_file_beats_default(project):
    """Each setting with its origin."""
    config = load_config(project, {"GPUDIAG_WINDOW": "device_span"}, {"fail_on": ("info",)})
    found = {name: (s.value, s.origin) for name, s in config.settings.items()}
    file = str(project.parents[1] / "pyproject.toml")
    assert found["top"] == (7, file)
    assert found["window"] == ("device_span", "GPUDIAG_WINDOW")
    assert found["fail_on"] == (("info",), "--fail-on")
    assert found["color"] == ("auto", "default")
    assert config.extra_spans() == {"checkpoint": ("my_save.*",)}


def test_the_nearest_configuration_alone_counts(project):
    """gpudiag.toml beats a pyproject.toml further up; one without our table is passed over."""
    (project / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load_config(project, {}).number("top") == 7
    (project.parent / "gpudiag.toml").write_text("top = 3\n")
    config = load_config(project, {})
    assert config.number("top") == 3
    assert config.text("window") is None


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("tpo = 3", "Did you mean top?"),
        ("top = 0", "a whole number above 0"),
        ("top = true", "a whole number above 0"),
        ('window = "stepz"', "Did you mean steps?"),
        ('partial_ok = "maybe"', "true or false"),
        ("fail_on = 3", "a list of names"),
        ("[spans]\nlaoder = ['x']", "Did you mean spans.loader?"),
        ("[spans]\nloader = ['(']", "regular expression"),
        ("spans = 3", "unknown setting: spans"),
        ("top = ", "can't be read"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, toml, said):
    """Unknown keys and impossible values are errors that name the file and a way out."""
    path = tmp_path / "gpudiag.toml"
    path.write_text(toml)
    with pytest.raises(UsageError) as caught:
        load_config(tmp_path, {})
    assert said in " ".join(caught.value.lines())
    assert str(path) in " ".join(caught.value.lines())


def test_a_table_that_is_no_table_is_refused(tmp_path):
    """``gpudiag = 3`` under [tool]."""
    (tmp_path / "pyproject.toml").write_text("[tool]\ngpudiag = 3\n")
    with pytest.raises(UsageError, match="no table"):
        load_config(tmp_path, {})


def test_the_environment_is_checked_too():
    """The message names the variable."""
    with pytest.raises(UsageError) as caught:
        load_config(_nowhere(), {"GPUDIAG_TOP": "many"})
    assert "GPUDIAG_TOP" in caught.value.why


def _nowhere():
    return Path("/")


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("GPUDIAG_FAIL_ON", "error, gc_pause", "fail_on", ("error", "gc_pause")),
        ("GPUDIAG_SPANS_LOADER", "my_next", "spans.loader", ("my_next",)),
        ("GPUDIAG_PARTIAL_OK", "1", "partial_ok", True),
        ("GPUDIAG_ASCII", "no", "ascii", False),
        ("GPUDIAG_TOP", "12", "top", 12),
        ("GPUDIAG_TOP", "", "top", 5),
    ],
)
def test_every_setting_has_a_variable(variable, value, name, expected):
    """Lists are comma-separated; an empty variable is as good as none."""
    assert load_config(_nowhere(), {variable: value}).settings[name].value == expected


def test_config_show_names_every_setting_and_its_origin(project):
    """And, on stderr, variables that set nothing."""
    env = {**os.environ, "GPUDIAG_WINDO": "all", "GPUDIAG_COLOR": "never"}
    done = gpudiag("config", "show", cwd=project, env=env)
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert set(lines) == set(KNOWN)
    assert lines["top"].split()[1] == "7"
    assert lines["top"].endswith("pyproject.toml")
    assert lines["color"].endswith("GPUDIAG_COLOR")
    assert lines["ascii"].endswith("default")
    assert "GPUDIAG_WINDO sets nothing. Did you mean GPUDIAG_WINDOW?" in done.stderr


def test_a_wrong_configuration_is_exit_2_in_every_command_that_reads_it(tmp_path):
    """Before anything is read."""
    (tmp_path / "gpudiag.toml").write_text("tpo = 3")
    for args in (["analyze", "x.json"], ["config", "show"], ["explain"]):
        done = gpudiag(*args, cwd=tmp_path)
        assert done.returncode == 2
        assert "Did you mean top?" in done.stderr
        assert not done.stdout


def test_user_spans_reach_the_analysis(tmp_path):
    """A checkpoint function of one's own becomes idle.checkpoint."""
    trace = write_trace(tmp_path / "trace.json")
    text = trace.read_text().replace("_SingleProcessDataLoaderIter.__next__", "my_save")
    trace.write_text(text.replace("enumerate(DataLoader)#my_save", "my_save_everything"))
    (tmp_path / "gpudiag.toml").write_text('[spans]\ncheckpoint = ["my_save.*"]\n')
    assert "idle.checkpoint" in gpudiag("analyze", trace, cwd=tmp_path).stdout
    assert "idle.checkpoint" not in gpudiag("analyze", trace, cwd="/").stdout
