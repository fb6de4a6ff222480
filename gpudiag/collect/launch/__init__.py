"""Run a user's command as if gpudiag weren't there: start, signals, exit code."""
