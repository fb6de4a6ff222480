"""Reports of an analysis: terminal text and JSON."""
