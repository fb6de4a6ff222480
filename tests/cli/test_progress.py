"""The progress bars: on a terminal, after a second, one per file."""

from __future__ import annotations

import pytest

from gpudiag.cli import progress


@pytest.fixture
def _terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")


def read(path, capsys, *, shown):
    with progress.reading_progress(shown=shown) as update:
        for done in (10, 20, 30):
            update(str(path), done)
    return capsys.readouterr().err


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize(
    ("patience_s", "shown", "seen"), [(0, True, True), (60, True, False), (0, False, False)]
)
def test_bars_are_for_long_work_on_a_terminal(
    monkeypatch, capsys, tmp_path, patience_s, shown, seen
):
    """Short work and pipes see nothing at all on stderr."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", patience_s)
    path = tmp_path / "rank0.json"
    path.write_bytes(b"x" * 30)
    err = read(path, capsys, shown=shown)
    assert ("rank0.json" in err) is seen
    assert bool(err) is seen


@pytest.mark.usefixtures("_terminal")
def test_what_has_no_size_has_a_bar_too(monkeypatch, capsys):
    """Standard input, say."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0)
    assert "-" in read("-", capsys, shown=True)
