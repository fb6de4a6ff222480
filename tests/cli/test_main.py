"""Errors, ours and the user's: one message, no traceback unless asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report.sample_analysis import analysis, damaged

from gpudiag.cli import analyze
from gpudiag.cli.analyze import fail_on_met, losses
from gpudiag.cli.main import main
from gpudiag.errors import InputError
from gpudiag.model.tables import Quality


def exit_code(args):
    with pytest.raises(SystemExit) as caught:
        main(args)
    return caught.value.code


def failing_with(monkeypatch, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(analyze, "_analysis", fail)


def test_our_own_bug_is_one_message_without_a_traceback(monkeypatch, capsys):
    """A user never sees Python's entrails; the message says how to."""
    failing_with(monkeypatch, ZeroDivisionError("division by zero"))
    assert exit_code(["analyze", "x"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.splitlines() == [
        "gpudiag: gpudiag has a bug: ZeroDivisionError: division by zero",
        "  run with --debug for a traceback.",
    ]


@pytest.mark.parametrize("args", [["--debug", "analyze", "x"], ["analyze", "x", "--debug"]])
@pytest.mark.parametrize(
    ("error", "code"), [(ZeroDivisionError("nothing"), 1), (InputError("nothing"), 3)]
)
def test_debug_shows_the_traceback(monkeypatch, capsys, args, error, code):
    """Before or after the command, for bugs and for errors."""
    failing_with(monkeypatch, error)
    assert exit_code(args) == code
    assert "Traceback" in capsys.readouterr().err


def test_debug_by_environment(monkeypatch, capsys):
    """GPUDIAG_DEBUG=1, where the command line can't be changed."""
    monkeypatch.setenv("GPUDIAG_DEBUG", "1")
    failing_with(monkeypatch, InputError("nothing"))
    assert exit_code(["analyze", "x"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_error_is_three_lines_and_its_exit_code(monkeypatch, capsys):
    """What, why, what to do."""
    failing_with(monkeypatch, InputError("x: no trace", "It is\na pickle.", "Export Kineto."))
    assert exit_code(["analyze", "x"]) == 3
    assert capsys.readouterr().err == (
        "gpudiag: x: no trace\n  It is\n  a pickle.\n  Export Kineto.\n"
    )


def test_ctrl_c_anywhere_is_exit_130(monkeypatch, capsys):
    """No traceback, no message."""
    failing_with(monkeypatch, KeyboardInterrupt())
    assert exit_code(["analyze", "x"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        ((), False),
        (("input_stall",), True),
        (("gc_pause",), False),
        (("error",), False),
        (("warning",), True),
        (("info", "gc_pause"), True),
    ],
)
def test_fail_on_takes_findings_and_severities(wanted, met):
    """A severity means this one or worse; the sample has a warning and an info."""
    assert fail_on_met(analysis(1), wanted) is met


def test_what_broke_off_or_is_unreadable_is_a_loss():
    """A README that lay in the folder is none."""
    one = analysis(1)
    skipped = replace(one.inputs[0], path="traces/README.md", status="skipped")
    assert losses(replace(one, inputs=[*one.inputs, skipped])) == []
    assert losses(damaged()) == ["traces/rank0.json.gz: partial: broke off at byte 20,431,002"]
    unreadable = Quality("inputs_unreadable", "error", 1, "left out: x")
    assert losses(replace(one, quality=[unreadable])) == ["left out: x"]
