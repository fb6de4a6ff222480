"""Tests of the analysis, and hand-made traces for them."""
