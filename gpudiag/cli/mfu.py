"""``gpudiag mfu``: MFU and HFU from a model description and a throughput."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gpudiag.cli import amounts, options, output
from gpudiag.cli import mfu_options as given
from gpudiag.cli.exit_codes import ExitCode
from gpudiag.cli.mfu_traces import check_vocabulary, filled, measure
from gpudiag.config import load_config, suggestion
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.analyze.model_flops.figures import Run
    from gpudiag.analyze.model_flops.measured import Measured
    from gpudiag.analyze.model_flops.training import Training
    from gpudiag.analyze.model_flops.workload import Workload
    from gpudiag.config import Config
    from gpudiag.model.mfu import ModelMfu

# What nearly all training computes in; the result says that it was taken.
_DEFAULT_DTYPE = "bf16"
_BY_NUMBERS = ("params", "active_params", "layers", "hidden", "heads", "head_dim", "vocab")


def mfu(
    ctx: typer.Context,
    traces: given.Traces = None,
    *,
    model: given.ModelFile = None,
    params: given.Params = None,
    active_params: given.ActiveParams = None,
    layers: given.Layers = None,
    hidden: given.Hidden = None,
    heads: given.Heads = None,
    head_dim: given.HeadDim = None,
    vocab: given.Vocab = None,
    seq: given.Seq = None,
    tokens_per_s: given.TokensPerS = None,
    tokens_per_s_per_gpu: given.TokensPerSPerGpu = None,
    tokens_per_step: given.TokensPerStep = None,
    batch: given.Batch = None,
    step_time: given.StepTime = None,
    gpus: given.Gpus = None,
    gpu: given.Gpu = None,
    peak_tflops: options.PeakTflops = None,
    dtype: given.Dtype = None,
    recompute: given.Recompute = "none",
    attention: given.Attention = "full",
    convention: given.ConventionId = None,
    lora_rank: given.LoraRank = None,
    lora_targets: given.LoraTargets = None,
    frozen_layers: given.FrozenLayers = None,
    mlp: given.MlpKind = None,
    mtp: given.Mtp = None,
    as_json: given.AsJson = False,
    color: options.Color = None,
    ascii_only: options.Ascii = False,
    debug: options.Debug = False,
) -> None:
    """Work out MFU and HFU from a model description and a throughput, in every convention.

    \b
    Examples:
      gpudiag mfu --model config.json --seq 8192 --tokens-per-s 2.9M \\
          --gpus 256 --gpu h100-sxm
      gpudiag mfu --params 7B --layers 32 --hidden 4096 --seq 4096 \\
          --tokens-per-step 4M --step-time 12s --gpus 128 --peak-tflops 312
      gpudiag mfu --model config.json traces/

    Exit codes: 0 done, 1 a result above 100 %, 2 usage, 3 the model's file or all traces are
    unreadable, 4 part of the traces.
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.analyze.model_flops.figures import model_mfu  # noqa: PLC0415 - only here

    ctx.obj.debug = ctx.obj.debug or debug
    flags = {"peak_tflops": peak_tflops, "dtype": dtype, "color": color}
    config = load_config(Path.cwd(), os.environ, flags | {"ascii": ascii_only or None})
    _check_choices(ctx.params)
    measured, lost = measure(traces, config) if traces else (None, [])
    asked, remarks = filled(ctx.params, measured) if measured else (ctx.params, ())
    workload = _workload(asked)
    if measured:
        check_vocabulary(ctx.params, measured, workload.numbers.vocab)
    run = _run(asked, config, measured, remarks)
    found = model_mfu(workload, run, _convention(convention, attention, has_shapes=bool(model)))
    _print(found, config, as_json=as_json)
    for one in lost:
        output.say(f"gpudiag: {one}")
    if lost and not config.settings["partial_ok"].value:
        raise typer.Exit(ExitCode.PARTIAL)


def _check_choices(asked: Mapping[str, Any]) -> None:
    from gpudiag.analyze.model_flops.context import ATTENTIONS  # noqa: PLC0415 - only here
    from gpudiag.analyze.model_flops.conventions import CONVENTIONS  # noqa: PLC0415 - the same
    from gpudiag.analyze.model_flops.hf_config import MLPS  # noqa: PLC0415 - the same
    from gpudiag.analyze.model_flops.training import RECOMPUTES  # noqa: PLC0415 - the same

    choices = {
        "recompute": RECOMPUTES,
        "attention": ATTENTIONS,
        "mlp": MLPS,
        "convention": tuple(CONVENTIONS),
    }
    for name, allowed in choices.items():
        value = asked[name]
        if value is not None and value not in allowed:
            raise UsageError(
                f"--{name} can't be {value!r}",
                f"Known are {', '.join(allowed)}.",
                "Correct it" + (suggestion(value, allowed) or "."),
            )


def _convention(convention: str | None, attention: str, *, has_shapes: bool) -> str | None:
    """Return the convention of the first line; None is as much as the numbers allow."""
    if attention == "full":
        return convention
    if convention is not None:
        raise UsageError(
            "--attention causal and --convention exclude each other",
            "A convention says how attention is counted.",
            "Choose one of them.",
        )
    return "gpudiag-causal" if has_shapes else "palm-causal"


def _workload(asked: Mapping[str, Any]) -> Workload:
    from gpudiag.analyze.model_flops.given import from_config, from_numbers  # noqa: PLC0415 - rare

    by_numbers = [name for name in _BY_NUMBERS if asked[name] is not None]
    if asked["model"] is not None and by_numbers:
        raise UsageError(
            f"--model and --{by_numbers[0].replace('_', '-')} exclude each other",
            "The config.json has these numbers.",
            "Give one or the other.",
        )
    lengths, training = _lengths(asked["seq"]), _training(asked)
    if asked["model"] is not None:
        if not lengths:
            raise UsageError("--seq is missing", "Attention grows with it.", "Add --seq T.")
        return from_config(
            asked["model"], lengths=lengths, training=training, mlp=asked["mlp"], mtp=asked["mtp"]
        )
    params = amounts.number(asked["params"], "--params")
    if params is None:
        raise UsageError(
            "No model is given",
            "MFU needs the FLOPs of a token.",
            "Add --model config.json, or --params N --layers L --hidden H --seq T.",
        )
    return from_numbers(
        params=params,
        active_params=amounts.number(asked["active_params"], "--active-params"),
        layers=amounts.whole(asked["layers"], "--layers"),
        hidden=amounts.whole(asked["hidden"], "--hidden"),
        vocab=amounts.whole(asked["vocab"], "--vocab"),
        lengths=lengths,
        training=training,
        heads_width=_heads_width(asked),
    )


def _heads_width(asked: Mapping[str, Any]) -> int | None:
    """Return heads x head dimension; heads alone divide the hidden size and change nothing."""
    heads = amounts.whole(asked["heads"], "--heads")
    dim = amounts.whole(asked["head_dim"], "--head-dim")
    if dim is not None and heads is None:
        raise UsageError("--head-dim needs --heads", "", "Add --heads H.")
    return heads * dim if heads is not None and dim is not None else None


def _lengths(seq: str | None) -> tuple[int, ...]:
    found = (amounts.whole(part, "--seq") for part in (seq or "").split(",") if seq)
    return tuple(one for one in found if one is not None)


def _training(asked: Mapping[str, Any]) -> Training:
    from gpudiag.analyze.model_flops.training import Training  # noqa: PLC0415 - only here

    targets = (asked["lora_targets"] or "").replace(" ", "")
    if targets and asked["lora_rank"] is None:
        raise UsageError("--lora-targets needs --lora-rank", "", "Add --lora-rank R.")
    return Training(
        recompute=asked["recompute"],
        lora_rank=amounts.whole(asked["lora_rank"], "--lora-rank"),
        lora_targets=tuple(name for name in targets.split(",") if name),
        frozen_layers=amounts.whole(asked["frozen_layers"], "--frozen-layers") or 0,
    )


def _run(
    asked: Mapping[str, Any],
    config: Config,
    measured: Measured | None,
    remarks: tuple[str, ...],
) -> Run:
    from gpudiag.analyze.model_flops.figures import Run  # noqa: PLC0415 - only here

    gpus = amounts.whole(asked["gpus"], "--gpus")
    if gpus is None:
        raise UsageError("--gpus is missing", "MFU divides by all GPUs of a job.", "Add --gpus N.")
    dtype = config.text("dtype") or _DEFAULT_DTYPE
    name = asked["gpu"]
    if measured and not name and measured.peak_tflops and measured.peak_source:
        dtype, name = measured.dtype or dtype, measured.gpu_name
        peak, source = measured.peak_tflops, measured.peak_source
    else:
        name = name or (measured.gpu_name if measured else None)
        peak, source, notes = _peak(name, dtype, config)
        remarks = (*remarks, *notes)
    return Run(
        tokens_per_s=_tokens_per_s(asked, gpus),
        gpus=gpus,
        peak_tflops=peak,
        peak_source=source,
        gpu_name=name,
        dtype=dtype,
        notes=remarks,
    )


def _tokens_per_s(asked: Mapping[str, Any], gpus: int) -> float:
    whole_job = amounts.number(asked["tokens_per_s"], "--tokens-per-s")
    per_gpu = amounts.number(asked["tokens_per_s_per_gpu"], "--tokens-per-s-per-gpu")
    per_step = _tokens_per_step(asked)
    step_s = amounts.seconds(asked["step_time"], "--step-time")
    if (per_step is None) != (step_s is None):
        raise UsageError(
            "--step-time and the tokens of a step go together",
            "",
            "Give --step-time, and --tokens-per-step or --batch.",
        )
    rates = [
        whole_job,
        per_gpu and per_gpu * gpus,
        per_step and step_s and per_step / step_s,
    ]
    known = [rate for rate in rates if rate is not None]
    if len(known) != 1:
        raise UsageError(
            "More than one throughput is given" if known else "No throughput is given",
            "",
            "Give one: --tokens-per-s, --tokens-per-s-per-gpu, or --tokens-per-step with "
            "--step-time.",
        )
    return known[0]


def _tokens_per_step(asked: Mapping[str, Any]) -> float | None:
    told = amounts.number(asked["tokens_per_step"], "--tokens-per-step")
    batch = amounts.number(asked["batch"], "--batch")
    if batch is None:
        return told
    length = sum(_lengths(asked["seq"]))
    if told is not None or not length:
        raise UsageError(
            "--batch counts sequences of --seq tokens, and stands for --tokens-per-step",
            "",
            "Give --batch with --seq, or --tokens-per-step.",
        )
    return batch * length


def _peak(name: str | None, dtype: str, config: Config) -> tuple[float, str, tuple[str, ...]]:
    """Return the dense peak of one GPU, TFLOP/s, where it is from, and remarks; never a guess."""
    from gpudiag.hardware import Device, lookup_named  # noqa: PLC0415 - only here

    told = config.decimal("peak_tflops")
    if told is not None:
        return told, "given by hand, taken as dense", _if_sparse(told, dtype)
    if name is None:
        raise UsageError(
            "The GPU isn't given",
            "MFU divides by its dense peak.",
            "Add --gpu NAME (see gpudiag doctor --gpus), or --peak-tflops.",
        )
    found = lookup_named(name)
    if not isinstance(found, Device):
        candidates = ", ".join(row.title for row in found.candidates)
        raise UsageError(
            f"The peak of {name!r} isn't known: {found.reason}",
            f"Candidates: {candidates}." if candidates else "",
            "Give the whole name, or --peak-tflops (dense). gpudiag doctor --gpus lists them all.",
        )
    peak = found.peak_tflops(dtype)
    if peak is None:
        raise UsageError(
            f"{found.title} has no {dtype} peak",
            f"It has {', '.join(found.dense_tflops)}.",
            "Give another --dtype, or --peak-tflops.",
        )
    assumed = (f"The peak is that of {found.assumed}.",) if found.assumed else ()
    return peak, f"{found.title}, {dtype} dense: {found.source}", assumed


def _if_sparse(peak: float, dtype: str) -> tuple[str, ...]:
    from gpudiag.hardware import sparse_of  # noqa: PLC0415 - only here

    rows = sparse_of(peak, dtype)[:1]
    return tuple(
        f"{peak:g} is the figure with 2:4 sparsity of {row.title} in {dtype}; its dense peak is "
        f"{row.dense_tflops[dtype]:g}."
        for row in rows
    )


def _print(found: ModelMfu, config: Config, *, as_json: bool) -> None:
    if as_json:
        from gpudiag.report.json import to_json  # noqa: PLC0415 - only where it's needed

        output.write_stdout(to_json(found))
        return
    from gpudiag.report.describe.mfu import mfu_report  # noqa: PLC0415 - rich is slow to import
    from gpudiag.report.terminal import render  # noqa: PLC0415 - the same

    output.write_stdout(render(mfu_report(found), output.style_of(config)))
