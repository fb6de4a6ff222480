"""The options of ``gpudiag mfu``, as the help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Traces: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TRACE]...",
        help="Traces of the run: they tell tokens and time of a step, GPUs, and the peak.",
    ),
]
ModelFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="FILE", readable=False, help="A Hugging Face config.json, or its folder."
    ),
]
Params: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="Parameters, where there is no config.json: 7e9, 7B."),
]
ActiveParams: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="With --params, a mixture of experts: those a token uses."),
]
Layers: TypeAlias = Annotated[str | None, typer.Option(metavar="L", help="With --params: layers.")]
Hidden: TypeAlias = Annotated[
    str | None, typer.Option(metavar="H", help="With --params: hidden size.")
]
Heads: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="H", help="With --params and --head-dim: attention heads."),
]
HeadDim: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="Q", help="Their dimension, where heads x it isn't the hidden size."),
]
Vocab: TypeAlias = Annotated[
    str | None, typer.Option(metavar="V", help="With --params: size of the vocabulary.")
]
Seq: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="T[,T...]", help="Tokens of a sequence; several are packed into one."),
]
TokensPerS: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tokens-per-s",
        "--tokens-per-second",
        metavar="X",
        help="Throughput of the whole job: 2.9M.",
    ),
]
TokensPerSPerGpu: TypeAlias = Annotated[
    str | None, typer.Option(metavar="X", help="Throughput of one GPU.")
]
TokensPerStep: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="Tokens of a step of the whole job.")
]
Batch: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="Or: sequences of a step, of all ranks and micro-batches."),
]
StepTime: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="With --tokens-per-step or --batch: 412ms, 1.2s.")
]
Gpus: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="All GPUs of the job. [the traces']")
]
Gpu: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The GPU as nvidia-smi -L names it, or its row's key."),
]
Dtype: TypeAlias = Annotated[
    str | None, typer.Option(metavar="bf16|fp16|...", help="Dtype of the peak. [bf16]")
]
Recompute: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="none|selective|full|full-early-stop",
        help="What backward computes again; full-early-stop: torch with use_reentrant=False.",
    ),
]
Attention: TypeAlias = Annotated[
    str, typer.Option(metavar="full|causal", help="Count attention's whole square, or half.")
]
ConventionId: TypeAlias = Annotated[
    str | None,
    typer.Option("--convention", metavar="ID", help="Convention of the first line. [gpudiag]"),
]
LoraRank: TypeAlias = Annotated[
    str | None, typer.Option(metavar="R", help="Only adapters of this rank are trained.")
]
LoraTargets: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Matrices that have adapters. [all]")
]
FrozenLayers: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="So many first layers are not trained.")
]
MlpKind: TypeAlias = Annotated[
    str | None,
    typer.Option("--mlp", metavar="gated|plain", help="MLP of a model_type that isn't known."),
]
Mtp: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0, max=10_000, metavar="N", help="Layers that predict further tokens. [config.json's]"
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
