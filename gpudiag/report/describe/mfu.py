"""``gpudiag mfu`` in words: the figure, the formula with its numbers, every other convention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.report.view import Column, Line, Lines, Report, Row, Table

if TYPE_CHECKING:
    from gpudiag.model.mfu import ConventionMfu, ModelMfu

_INDENT = 2


def mfu_report(found: ModelMfu) -> Report:
    """Return everything there is to say of a run's figures."""
    chosen = found.chosen
    hfu = "" if chosen.hfu is None else f", HFU {fmt.share(chosen.hfu)}"
    rate = f"{_digits(chosen.tflops_per_gpu)} of {found.peak_tflops:g} TFLOP/s per GPU"
    headline = f"MFU {fmt.share(chosen.mfu)}{hfu}: {rate} on {fmt.counted(found.gpus, 'GPU')}."
    return Report(
        headline=headline,
        context=f"{found.model}, recomputation {found.recompute}; peak: {found.peak_source}",
        sections=(_derivation(found), _conventions(found)),
    )


def _derivation(found: ModelMfu) -> Lines:
    chosen = found.chosen
    numbers = ", ".join(f"{name} = {fmt.amount(value)}" for name, value in found.numbers.items())
    lines = [
        ("convention", f"{chosen.id}: attention {chosen.attention}; {chosen.source}"),
        ("FLOPs/token", f"{_formula(chosen)} = {_flop(chosen.flops_per_token)}"),
        ("with", numbers),
    ]
    if found.forward_flops_per_token:
        parts = found.forward_flops_per_token.items()
        forward = " + ".join(f"{name} {_flop(value)}" for name, value in parts)
        lines.append(("forward", forward))
    if chosen.hw_flops_per_token not in {None, chosen.flops_per_token}:
        executed = f"{_flop(chosen.hw_flops_per_token)} with what is computed again"
        lines.append(("executed", f"{executed}: HFU {fmt.share(chosen.hfu)}"))
    division = f"({found.gpus:,} × {found.peak_tflops:g} TFLOP/s)"
    speed = f"{found.tokens_per_s:,.0f} tokens/s"
    lines.append(
        ("MFU", f"{speed} × {_flop(chosen.flops_per_token)} ÷ {division} = {fmt.share(chosen.mfu)}")
    )
    lines += [("note", text) for text in found.notes]
    return Lines(
        title="how",
        lines=tuple(Line(label=label, text=text, indent=_INDENT) for label, text in lines),
    )


def _conventions(found: ModelMfu) -> Table:
    """Return a row per convention that can be worked out; those that can't are named below."""
    known = [one for one in found.conventions if one.mfu is not None]
    lacking = [one for one in found.conventions if one.mfu is None]
    notes = tuple(f"{one.id}: {one.remark}" for one in lacking)
    return Table(
        title="the same run, as others count it",
        columns=(
            Column(title="convention"),
            Column(title="MFU", align="right"),
            Column(title="HFU", align="right"),
            Column(title="TFLOP/s per GPU", short="TFLOP/s", align="right"),
            Column(title="attention", drop=2),
            Column(title="FLOPs per token", drop=1, below="=", cut="whole"),
        ),
        rows=tuple(_row(one, found) for one in known),
        notes=notes,
    )


def _row(one: ConventionMfu, found: ModelMfu) -> Row:
    return Row(
        cells=(
            one.id,
            fmt.share(one.mfu),
            "" if one.hfu is None else fmt.share(one.hfu),
            _digits(one.tflops_per_gpu),
            one.attention,
            _formula(one),
        ),
        tone="strong" if one.id == found.chosen.id else "plain",
    )


def _formula(one: ConventionMfu) -> str:
    return f"{one.formula} ({one.remark})" if one.remark else one.formula


def _digits(tflops: float | None) -> str:
    return fmt.unavailable() if tflops is None else f"{tflops:.1f}"


def _flop(number: float | None) -> str:
    if number is None:
        return fmt.unavailable()
    text = fmt.amount(number)
    return f"{text}FLOP" if text[-1].isalpha() else f"{text} FLOP"
