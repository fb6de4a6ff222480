"""Makes the helpers beside these tests importable: ``trace`` is a module of Python's own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
