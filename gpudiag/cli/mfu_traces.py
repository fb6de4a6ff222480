"""What ``gpudiag mfu`` takes from traces: each option that wasn't given and that they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpudiag.cli import amounts
from gpudiag.cli.analyze import losses
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.analyze.model_flops.measured import Measured
    from gpudiag.config import Config

_THROUGHPUTS = ("tokens_per_s", "tokens_per_s_per_gpu")
_SAME = 0.01  # share of the traces' number
# Tables are padded to a multiple of up to so many rows, and a little for added tokens.
_PADDED_ROWS = 1024
_MOST_PADDING = 1.05


def measure(paths: list[str], config: Config) -> tuple[Measured, list[str]]:
    """Return the throughput of traces, and what of them could not be read."""
    from gpudiag.analyze.model_flops.measured import measured  # noqa: PLC0415 - only here
    from gpudiag.analyze.rank import Options  # noqa: PLC0415 - numpy is slow to import
    from gpudiag.engine.job import analyze_paths  # noqa: PLC0415 - the same

    options = Options(
        window=config.text("window"),
        extra_spans=config.extra_spans(),
        peak_tflops=config.decimal("peak_tflops"),
        dtype=config.text("dtype"),
    )
    analysis = analyze_paths(paths, options, processes=config.optional_number("processes"))
    return measured(analysis), losses(analysis)


def filled(asked: Mapping[str, Any], found: Measured) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options with what traces tell in place of those not given, and remarks.

    What was given wins; where the traces say otherwise, a remark says so.
    """
    told: dict[str, int | None] = {"gpus": found.gpus}
    origin = {"gpus": found.gpus_from, "step_time": found.step_from}
    if asked["params"] is None or asked["seq"] is None:
        told |= {"seq": found.sequence}
        origin |= {"seq": f"The sequence's length, {found.sequence}, is that of the lookups."}
    if not _has_throughput(asked):
        told |= {"step_time": found.step_ns} | _work(asked, found)
        origin |= dict.fromkeys(("tokens_per_step", "batch"), found.tokens_from)
    _refuse_unknown(asked, found, told)
    whole = dict(asked)
    remarks: list[str] = []
    for name, value in told.items():
        if value is None:
            continue
        if whole[name] is None:
            whole[name] = f"{value / 1e9!r}s" if name == "step_time" else str(value)
            remarks.append(origin[name])
        else:
            remarks += _difference(name, whole[name], value)
    if found.tokens_from in remarks:
        remarks += found.conflicts
    return whole, (*remarks, *_other_throughput(asked, found), *_other_gpu(asked, found))


def check_vocabulary(asked: Mapping[str, Any], found: Measured, vocabulary: int | None) -> None:
    """Refuse tokens counted at a table that can't be the whole one of this model.

    Raises:
        UsageError: its rows are not the model's vocabulary, padded at most.
    """
    rows = found.vocabulary
    taken = not _has_throughput(asked) and not asked["tokens_per_step"] and not asked["batch"]
    if not taken or rows is None or vocabulary is None:
        return
    if not vocabulary <= rows <= vocabulary * _MOST_PADDING + _PADDED_ROWS:
        raise UsageError(
            f"The traces' embedding has {rows:,} rows, the model's vocabulary {vocabulary:,}",
            "It is another model's, or parted among ranks that share tokens.",
            "Check --model, or add --tokens-per-step N: of all ranks and micro-batches.",
        )


def _has_throughput(asked: Mapping[str, Any]) -> bool:
    return any(asked[name] for name in _THROUGHPUTS)


def _work(asked: Mapping[str, Any], found: Measured) -> dict[str, int | None]:
    """Return the tokens of a step, or its sequences; nothing where sequences were given."""
    if asked["batch"]:
        return {}
    if found.samples_per_step is not None and not asked["tokens_per_step"]:
        return {"batch": found.samples_per_step}
    return {"tokens_per_step": found.tokens_per_step}


def _refuse_unknown(
    asked: Mapping[str, Any], found: Measured, told: Mapping[str, int | None]
) -> None:
    if "tokens_per_step" in told and not asked["tokens_per_step"] and not found.tokens_per_step:
        raise UsageError(
            "The traces don't tell the tokens of a step",
            f"{found.tokens_from[:1].upper()}{found.tokens_from[1:]}.",
            "Add --tokens-per-step N, or --batch N with --seq: of all ranks and micro-batches.",
        )
    if "step_time" in told and not asked["step_time"] and not found.step_ns:
        raise UsageError(
            "The traces don't tell the time of a step",
            "They record fewer than two steps.",
            "Add --step-time, or record with torch.profiler's step().",
        )


def _difference(name: str, given: str, told: int) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if name == "step_time":
        same = abs((amounts.seconds(given, flag) or 0) * 1e9 - told) <= _SAME * told
        shown = f"{told / 1e6:.1f} ms"
    else:
        same = amounts.number(given.split(",", maxsplit=1)[0], flag) == told
        shown = f"{told:,}"
    return [] if same else [f"{flag} {given} is used; the traces tell {shown}."]


def _other_throughput(asked: Mapping[str, Any], found: Measured) -> list[str]:
    """Return a remark where the throughput that was given isn't that of the traces."""
    name = next((one for one in _THROUGHPUTS if asked[one]), None)
    if name is None or not found.tokens_per_step or not found.step_ns:
        return []
    flag, given = "--" + name.replace("_", "-"), asked[name]
    told = found.tokens_per_step * 1e9 / found.step_ns
    told /= (found.gpus or 1) if name == "tokens_per_s_per_gpu" else 1
    same = abs((amounts.number(given, flag) or 0) - told) <= _SAME * told
    return [] if same else [f"{flag} {given} is used; the traces tell {told:,.0f}."]


def _other_gpu(asked: Mapping[str, Any], found: Measured) -> list[str]:
    from gpudiag.hardware import Device, lookup_named  # noqa: PLC0415 - only here

    if not asked["gpu"] or not found.gpu_name:
        return []
    given, told = lookup_named(asked["gpu"]), lookup_named(found.gpu_name)
    same = isinstance(given, Device) and isinstance(told, Device) and given.key == told.key
    return [] if same else [f"--gpu {asked['gpu']} is used; the traces tell {found.gpu_name}."]
