"""Tables to analysis: pure functions, no I/O, no printing."""
