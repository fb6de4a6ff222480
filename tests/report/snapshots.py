"""Text snapshots: compared with the file beside the test, or rewritten on request."""

from __future__ import annotations

import os
from pathlib import Path

REGENERATE = os.environ.get("GPUDIAG_TEST_REGEN", "") not in {"", "0"}
FOLDER = Path(__file__).parent / "snapshots"


def same_as_snapshot(name: str, text: str) -> None:
    """Hold a text to its snapshot; GPUDIAG_TEST_REGEN=1 writes the snapshot instead."""
    path = FOLDER / name
    if REGENERATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"{path} differs: GPUDIAG_TEST_REGEN=1 rewrites"
    )
