"""Fixtures and markers for all tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import require

if TYPE_CHECKING:
    from pathlib import Path


def pytest_configure() -> None:
    """Refuse a misspelt promise before any test runs."""
    require.promised()


def pytest_report_header() -> str:
    """Say what this machine has and what it promises."""
    present = sorted(name for name, (here, _) in require.THINGS.items() if here())
    promised = ",".join(sorted(require.promised())) or "nothing"
    return f"needs: present {','.join(present) or 'nothing'}; promised {promised}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Act on every ``needs`` mark of the test."""
    for mark in item.iter_markers("needs"):
        require.require(*mark.args)


@pytest.fixture(autouse=True)
def _environment_of_a_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own settings out of the tests: no GPUDIAG_*, no colour, 80 columns."""
    for name in list(os.environ):
        if name.startswith("GPUDIAG_") and not name.startswith("GPUDIAG_TEST_"):
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def shared() -> Path:
    """Return ../shared: real traces and the figures to hold, kept outside the repository."""
    require.require("shared")
    return require.SHARED


@pytest.fixture
def samples() -> Path:
    """Return sample_traces/."""
    return require.SAMPLES
