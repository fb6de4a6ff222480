"""Settings: each with its value and where it came from.

A flag beats ``GPUDIAG_*``, which beats ``gpudiag.toml`` or ``[tool.gpudiag]`` in the nearest
pyproject.toml, which beats the default. What can't be understood is an error, never ignored.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

WINDOWS = ("steps", "device_span", "all")
DTYPES = ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32", "fp64", "int8")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2")
COLORS = ("auto", "always", "never")
ENV_PREFIX = "GPUDIAG_"
_DEFAULT = "default"
# Of settings that are peaks and clocks: beyond these, a unit is wrong.
_LEAST_NUMBER, _MOST_NUMBER = 1e-6, 1e9
# Set by people for other ends than settings; not mistakes.
_OTHER_VARIABLES = re.compile(r"GPUDIAG_(TEST_\w+|DEBUG)$")


def _choice(allowed: tuple[str, ...]) -> Callable[[Any], str]:
    def parse(raw: Any) -> str:
        if raw in allowed:
            return str(raw)
        raise ValueError(f"one of {', '.join(allowed)}" + suggestion(str(raw), allowed))

    return parse


def _boolean(raw: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in words:
        return words[raw.lower()]
    raise ValueError("true or false")


def _positive(raw: Any) -> int:
    if isinstance(raw, str) and raw.strip().isdecimal():
        raw = int(raw)
    if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0:
        return raw
    raise ValueError("a whole number above 0")


def _positive_number(raw: Any) -> float:
    try:
        number = 0.0 if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError):
        number = 0.0
    if _LEAST_NUMBER <= number <= _MOST_NUMBER:
        return number
    raise ValueError(f"a number above 0, {_LEAST_NUMBER:g} to {_MOST_NUMBER:g}")


def _schedule(raw: Any) -> str:
    kind, colon, chunks = raw.lower().partition(":") if isinstance(raw, str) else ("", "", "")
    counted = not colon or (kind == "interleaved" and re.fullmatch(r"[1-9][0-9]{0,2}", chunks))
    if kind in SCHEDULES and counted:
        return f"{kind}{colon}{chunks}"
    allowed = ", ".join(SCHEDULES)
    raise ValueError(f"one of {allowed}, interleaved:CHUNKS" + suggestion(kind, SCHEDULES))


def _names(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, str):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(raw, list) and all(isinstance(one, str) for one in raw):
        return tuple(raw)
    raise ValueError("a list of names")


def _patterns(raw: Any) -> tuple[str, ...]:
    patterns = _names(raw)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"regular expressions; {pattern!r}: {error}") from error
    return patterns


@dataclass(frozen=True, slots=True)
class _Known:
    """A setting that exists: how its value is read, its default, and what it is for."""

    parse: Callable[[Any], Value]
    default: Value
    help: str


SPAN_KINDS = ("loader", "checkpoint", "eval", "gc", "compile")

KNOWN: dict[str, _Known] = {
    "window": _Known(
        _choice(WINDOWS), None, "the window to account for; by default steps, where there are any"
    ),
    "peak_tflops": _Known(
        _positive_number, None, "dense peak of one GPU, TFLOP/s; by default its name tells it"
    ),
    "dtype": _Known(
        _choice(DTYPES), None, "dtype that MFU is measured in; by default what did most FLOPs"
    ),
    "sm_clock_mhz": _Known(_positive_number, None, "mean SM clock of the run, for the waterfall"),
    "pipeline_schedule": _Known(
        _schedule, None, "schedule of the pipeline; by default sends and receives tell it"
    ),
    "processes": _Known(
        _positive, None, "ranks that are read at once; by default as many as there are cores"
    ),
    "top": _Known(_positive, 5, "rows in the tables of gaps and kernels"),
    "fail_on": _Known(_names, (), "findings or severities that make the exit code 1"),
    "partial_ok": _Known(_boolean, False, "a partly unreadable input is no failure"),
    "color": _Known(_choice(COLORS), "auto", "colour: auto, always or never"),
    "ascii": _Known(_boolean, False, "write ASCII characters only"),
    **{
        f"spans.{kind}": _Known(_patterns, (), f"more names of host spans that count as {kind}")
        for kind in SPAN_KINDS
    },
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting's value and where it came from."""

    name: str
    value: Value
    origin: str


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting, by name."""

    settings: dict[str, Setting]

    def text(self, name: str) -> str | None:
        """Return a setting that is text, or None."""
        value = self.settings[name].value
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int:
        """Return a setting that is a number."""
        value = self.settings[name].value
        assert isinstance(value, int)  # noqa: S101 - KNOWN says so
        return value

    def optional_number(self, name: str) -> int | None:
        """Return a setting that is a number, or None."""
        value = self.settings[name].value
        return value if isinstance(value, int) else None

    def decimal(self, name: str) -> float | None:
        """Return a setting that is a number with decimals, or None."""
        value = self.settings[name].value
        return float(value) if isinstance(value, (int, float)) else None

    def pipeline_schedule(self) -> tuple[str, int | None] | None:
        """Return the pipeline's schedule and its chunks a stage, as far as they are set."""
        value = self.text("pipeline_schedule")
        if value is None:
            return None
        kind, _, chunks = value.partition(":")
        return kind, int(chunks) if chunks else None

    def names(self, name: str) -> tuple[str, ...]:
        """Return a setting that is a list."""
        value = self.settings[name].value
        assert isinstance(value, tuple)  # noqa: S101 - KNOWN says so
        return value

    def extra_spans(self) -> dict[str, tuple[str, ...]]:
        """Return the patterns of host spans that the user added, by kind."""
        found = {kind: self.names(f"spans.{kind}") for kind in SPAN_KINDS}
        return {kind: patterns for kind, patterns in found.items() if patterns}


def load_config(
    start: Path, environ: Mapping[str, str], flags: Mapping[str, Value] | None = None
) -> Config:
    """Return the settings in force for a command started in ``start``."""
    settings = {name: Setting(name, known.default, _DEFAULT) for name, known in KNOWN.items()}
    settings |= _from_file(start)
    settings |= _from_environment(environ)
    settings |= {
        name: Setting(name, _parsed(name, value, flag_name(name)), flag_name(name))
        for name, value in (flags or {}).items()
        if value is not None
    }
    return Config(settings)


def flag_name(setting: str) -> str:
    """Return the flag of a setting."""
    return "--" + setting.replace("_", "-")


def variable_name(setting: str) -> str:
    """Return the environment variable of a setting."""
    return ENV_PREFIX + setting.replace(".", "_").upper()


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the GPUDIAG_ variables that set nothing: misspelt, or of another version."""
    known = {variable_name(name) for name in KNOWN}
    return sorted(
        name
        for name in environ
        if name.startswith(ENV_PREFIX) and name not in known and not _OTHER_VARIABLES.match(name)
    )


def suggestion(wrong: str, allowed: Iterable[str]) -> str:
    """Return ". Did you mean ...?" for a word that is close to one that is known, else ""."""
    close = difflib.get_close_matches(wrong, list(allowed), n=1)
    return f". Did you mean {close[0]}?" if close else ""


def _parsed(name: str, raw: Any, origin: str) -> Value:
    try:
        return KNOWN[name].parse(list(raw) if isinstance(raw, tuple) else raw)
    except ValueError as error:
        raise UsageError(
            f"The setting {name} can't be {raw!r}", f"It comes from {origin}.", f"Expected {error}"
        ) from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    found = {}
    for name in KNOWN:
        variable = variable_name(name)
        raw = environ.get(variable)
        if raw:
            found[name] = Setting(name, _parsed(name, raw, variable), variable)
    return found


def _from_file(start: Path) -> dict[str, Setting]:
    path, table = _nearest(start)
    if path is None:
        return {}
    flat = _flat(table, path)
    return {name: Setting(name, _parsed(name, raw, str(path)), str(path)) for name, raw in flat}


def _nearest(start: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the nearest file upwards that configures gpudiag, and its table."""
    for folder in (start, *start.parents):
        own = folder / "gpudiag.toml"
        if own.is_file():
            return own, _read(own)
        project = folder / "pyproject.toml"
        if project.is_file():
            tools = _read(project).get("tool", {})
            table = tools.get("gpudiag") if isinstance(tools, dict) else None
            if table is not None:
                return project, table
    return None, {}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"The configuration file {path} can't be read", f"{error}.", "Correct the file."
        ) from error


def _flat(table: Any, path: Path) -> list[tuple[str, Any]]:
    """Return a file's settings under their full names; an unknown one is an error."""
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.gpudiag is no table", "", "Write it as [tool.gpudiag].")
    flat: list[tuple[str, Any]] = []
    for key, value in table.items():
        if key == "spans" and isinstance(value, dict):
            flat += [(f"spans.{kind}", patterns) for kind, patterns in value.items()]
        else:
            flat.append((key.replace("-", "_"), value))
    for name, _ in flat:
        if name not in KNOWN:
            known = ", ".join(KNOWN)
            raise UsageError(
                f"{path} has an unknown setting: {name}",
                f"Known are {known}.",
                "Correct or remove it" + (suggestion(name, KNOWN) or "."),
            )
    return flat
