"""Pipeline parallelism: what of a stage's waiting the schedule itself costs (accounting.md 5)."""
