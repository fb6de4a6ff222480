"""What ``gpudiag mfu`` takes from traces: each option that wasn't given and that they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpudiag.cli import amounts
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.analyze.model_flops.measured import Measured
    from gpudiag.config import Config

_THROUGHPUTS = ("tokens_per_s", "tokens_per_s_per_gpu")


def measure(paths: list[str], config: Config) -> Measured:
    """Analyse traces for their throughput."""
    from gpudiag.analyze.job import analyze_job  # noqa: PLC0415 - numpy is slow to import
    from gpudiag.analyze.model_flops.measured import measured  # noqa: PLC0415 - the same
    from gpudiag.analyze.rank import Options  # noqa: PLC0415 - the same
    from gpudiag.trace.job import read_job  # noqa: PLC0415 - the same

    options = Options(
        window=config.text("window"),
        extra_spans=config.extra_spans(),
        peak_tflops=config.decimal("peak_tflops"),
        dtype=config.text("dtype"),
    )
    return measured(analyze_job(read_job(paths), options))


def filled(asked: Mapping[str, Any], found: Measured) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options with what traces tell in place of those not given, and remarks.

    What was given wins; where the traces say otherwise, a remark says so.
    """
    told: dict[str, int | None] = {"gpus": found.gpus}
    if not any(asked[name] for name in _THROUGHPUTS):
        told |= {"step_time": found.step_ns}
        told |= {} if asked["batch"] else {"tokens_per_step": found.tokens_per_step}
    if asked["params"] is None or asked["seq"] is None:
        told |= {"seq": found.sequence}
    _refuse_unknown(asked, found, told)
    whole = dict(asked)
    remarks = list(found.remarks) if "step_time" in told else []
    for name, value in told.items():
        if value is None:
            continue
        if whole[name] is None:
            whole[name] = f"{value / 1e9!r}s" if name == "step_time" else str(value)
        else:
            remarks += _difference(name, whole[name], value)
    return whole, tuple(remarks)


def _refuse_unknown(
    asked: Mapping[str, Any], found: Measured, told: Mapping[str, int | None]
) -> None:
    if "tokens_per_step" in told and not asked["tokens_per_step"] and not found.tokens_per_step:
        raise UsageError(
            "The traces don't tell the tokens of a step",
            f"{found.no_tokens[:1].upper()}{found.no_tokens[1:]}.",
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
        same = abs((amounts.seconds(given, flag) or 0) * 1e9 - told) <= 0.01 * told
        shown = f"{told / 1e6:.1f} ms"
    else:
        same = amounts.number(given.split(",", maxsplit=1)[0], flag) == told
        shown = f"{told:,}"
    return [] if same else [f"{flag} {given} is used; the traces tell {shown}."]
