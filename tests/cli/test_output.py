"""What a terminal gets: colour, characters and width by flag, environment and stream."""

from __future__ import annotations

import os

import pytest
from cli.tiny import gpudiag, write_trace
from rich.cells import cell_len

from gpudiag.cli.output import Stream, style_for

TTY = Stream(is_tty=True, encoding="utf-8", width=80)
PIPE = Stream(is_tty=False, encoding="utf-8", width=80)


@pytest.mark.parametrize(
    ("stream", "environ", "color", "expected"),
    [
        (TTY, {}, "auto", True),
        (PIPE, {}, "auto", False),
        (TTY, {"NO_COLOR": "1"}, "auto", False),
        (TTY, {"NO_COLOR": ""}, "auto", True),
        (PIPE, {"FORCE_COLOR": "1"}, "auto", True),
        (PIPE, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        (TTY, {"TERM": "dumb"}, "auto", False),
        (TTY, {"NO_COLOR": "1"}, "always", True),
        (TTY, {"FORCE_COLOR": "1"}, "never", False),
    ],
)
def test_the_flag_beats_the_environment_beats_the_terminal(stream, environ, color, expected):
    """NO_COLOR counts when it isn't empty, as no-color.org asks."""
    assert style_for(stream, environ, color=color).color is expected


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", False),
        ("UTF8", False),
        ("ascii", True),
        ("latin-1", True),
        (None, True),
        ("?", True),
    ],
)
def test_what_is_not_utf8_gets_ascii(encoding, expected):
    """No character is sent that the terminal can't show."""
    stream = Stream(is_tty=True, encoding=encoding, width=80)
    assert style_for(stream, {}).ascii is expected
    assert style_for(stream, {}, ascii_only=True).ascii is True


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "trace.json")


def run(trace, *args, **environ):
    done = gpudiag("analyze", trace, *args, env={**os.environ, **environ}, encoding=None)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_no_color_and_force_color_are_heard(trace):
    """In a real process whose stdout is a pipe."""
    assert b"\x1b[" not in run(trace)
    assert b"\x1b[" in run(trace, FORCE_COLOR="1")
    assert b"\x1b[" not in run(trace, FORCE_COLOR="1", NO_COLOR="1")
    assert b"\x1b[" in run(trace, "--color", "always", NO_COLOR="1")
    assert b"\x1b[" not in run(trace, "--json", "--color", "always")


@pytest.mark.parametrize("columns", ["40", "61", "80", "200"])
def test_columns_is_the_width(trace, columns):
    """$COLUMNS rules, as for every program."""
    text = run(trace, "-v", COLUMNS=columns).decode()
    assert max(cell_len(line) for line in text.splitlines()) <= int(columns)


@pytest.mark.parametrize("columns", ["0", "1", "-5", "wide"])
def test_an_odd_width_is_no_crash(trace, columns):
    """A terminal that lies about its size still gets the report."""
    assert b"sum = window, to the" in run(trace, COLUMNS=columns)


@pytest.mark.parametrize(
    "environ", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}]
)
def test_other_encodings_get_ascii(trace, environ):
    """No UnicodeEncodeError, and no question marks where words were."""
    text = run(trace, "-v", **environ)
    assert text.isascii()
    assert b"us" in text


def test_the_c_locale_is_no_crash(trace):
    """Bare containers set no locale at all."""
    run(trace, LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")


def test_ascii_flag(trace):
    """--ascii on a terminal that could do more."""
    assert run(trace, "--ascii").isascii()
    assert not run(trace).isascii()


def test_file_names_that_are_no_text_are_shown_and_written(tmp_path):
    """Bytes that aren't UTF-8 in a path: the report and the JSON stay valid."""
    path = write_trace(tmp_path / os.fsdecode(b"tr\xff\x1bace.json"))
    run(path, "-v").decode("utf-8")
    run(path, "--json").decode("utf-8")
    assert b"\x1b" not in run(path, "-v")
