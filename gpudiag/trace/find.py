"""From what was typed to files: files, folders, globs and standard input, each file once."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.errors import InputError
from gpudiag.trace.source import STDIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to look at; ``named`` when the user gave it, not just a folder that holds it."""

    path: str
    named: bool


def find_files(paths: Iterable[str]) -> list[Candidate]:
    """Expand paths; a file that is reached twice counts once, as named if it was named once."""
    found: dict[str, Candidate] = {}
    for path in paths:
        for candidate in _expand(path):
            key = candidate.path if candidate.path == STDIN else os.path.realpath(candidate.path)
            if key not in found or (candidate.named and not found[key].named):
                found[key] = candidate
    return list(found.values())


def _expand(path: str) -> Iterator[Candidate]:
    if path == STDIN or Path(path).is_file():
        yield Candidate(path, named=True)
    elif Path(path).is_dir():
        yield from _walk(path)
    elif os.path.lexists(path):  # a device, a dangling link: opening it tells what is wrong
        yield Candidate(path, named=True)
    else:
        yield from _glob(path)


def _glob(pattern: str) -> Iterator[Candidate]:
    # pathlib's own glob takes no absolute pattern
    matches = sorted(glob.glob(pattern, recursive=True)) if _MAGIC & set(pattern) else []  # noqa: PTH207
    if not matches:
        if _MAGIC & set(pattern):
            raise InputError(f"{pattern}: matches no file", "", "Check the pattern, and quote it.")
        raise InputError(
            f"{pattern}: no such file or folder", "", "Check the path; quote it if it has spaces."
        )
    for match in matches:
        if Path(match).is_dir():
            yield from _walk(match)
        else:
            yield Candidate(match, named=True)


def _walk(folder: str) -> Iterator[Candidate]:
    """Yield the files below a folder in order of path; hidden ones are left out."""

    def refuse(error: OSError) -> None:
        raise InputError(
            f"{error.filename}: the folder can't be read",
            str(error.strerror),
            "Check its permissions.",
        ) from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(files):
            path = Path(root) / name
            # pipes, sockets and devices would be waited for; a dangling link is said to be one
            if not name.startswith(".") and (path.is_file() or not path.exists()):
                yield Candidate(str(path), named=False)
