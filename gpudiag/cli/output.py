"""Where text goes and what may be shown there: data on stdout, everything else on stderr."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from gpudiag.errors import GpudiagError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.config import Config
    from gpudiag.report.terminal import Style

# What a table is laid out for where nobody's terminal says how wide it is (a pipe, a file).
_PIPE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Stream:
    """What is known of the stream that output goes to; passed in, so that it can be tested."""

    is_tty: bool
    encoding: str | None
    width: int


def is_tty(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; None is one that the caller closed."""
    return stream is not None and stream.isatty()


def stdout_stream() -> Stream:
    """Return what is known of this process's standard output."""
    if sys.stdout is None:
        return Stream(is_tty=False, encoding=None, width=_PIPE_WIDTH)
    is_tty = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    return Stream(is_tty=is_tty, encoding=sys.stdout.encoding or "utf-8", width=width)


def stderr_width() -> int:
    """Return how wide a terminal is that stderr goes to; for anything else as for a pipe."""
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return _PIPE_WIDTH


def style_for(
    stream: Stream, environ: Mapping[str, str], *, color: str = "auto", ascii_only: bool = False
) -> Style:
    """Return how to write to a stream: the flags first, then the environment, then the stream."""
    from gpudiag.report.terminal import Style  # noqa: PLC0415 - rich is slow to import

    return Style(
        width=stream.width,
        color=_use_color(stream, environ, color),
        ascii=ascii_only or not _is_utf8(stream.encoding),
    )


def style_of(config: Config) -> Style:
    """Return how to write to this process's standard output."""
    return style_for(
        stdout_stream(),
        os.environ,
        color=config.text("color") or "auto",
        ascii_only=bool(config.settings["ascii"].value),
    )


def _use_color(stream: Stream, environ: Mapping[str, str], color: str) -> bool:
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.is_tty and environ.get("TERM") != "dumb"


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False


def write_stdout(data: str | bytes) -> None:
    """Write data to standard output; a reader who has left is no error."""
    if sys.stdout is None:  # closed by the caller, who wants the exit code alone
        return
    encoding = sys.stdout.encoding or "utf-8"
    raw = data if isinstance(data, bytes) else data.encode(encoding, "replace")
    try:
        sys.stdout.flush()
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(raw)
        else:  # a program that calls main() may have put a text-only stream in place
            sys.stdout.write(raw.decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
    except OSError as error:
        _silence_stdout()
        raise GpudiagError(
            "The result could not be written to standard output", f"{error.strerror}."
        ) from error


def _silence_stdout() -> None:
    """Point stdout at nothing, so that Python's own flush at exit has nothing to fail at."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def say(text: str) -> None:
    """Write a message for the user to stderr; a closed stderr is no error."""
    if sys.stderr is None:
        return
    from gpudiag.model.format import clean  # noqa: PLC0415 - only where it's needed

    encoding = sys.stderr.encoding or "ascii"
    safe = "\n".join(clean(line) for line in text.split("\n"))
    try:
        sys.stderr.write(safe.encode(encoding, "replace").decode(encoding) + "\n")
        sys.stderr.flush()
    except OSError:
        pass
