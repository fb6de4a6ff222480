"""What the commands of one invocation share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """State of one invocation: the group's options, known before and after the command runs."""

    debug: bool = False
