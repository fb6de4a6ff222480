"""Dataclasses and table schemas that cross the boundaries between layers."""
