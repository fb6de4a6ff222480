"""What people give of a model, as a workload: a config.json, or a few numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpudiag.analyze.model_flops.hf_config import Mlp, read_config
from gpudiag.analyze.model_flops.training import Training, target_names
from gpudiag.analyze.model_flops.workload import Numbers, Workload, numbers_of
from gpudiag.errors import InputError, UsageError

_CONFIG = "config.json"


def from_config(
    path: Path,
    *,
    lengths: tuple[int, ...],
    training: Training,
    mlp: Mlp | None = None,
    mtp: int | None = None,
) -> Workload:
    """Return the workload of a Hugging Face config.json, or of a folder with one in it."""
    model = read_config(_read(path / _CONFIG if path.is_dir() else path), mlp, mtp)
    known = target_names(model)
    unknown = [name for name in training.lora_targets if name not in known]
    if unknown:
        raise UsageError(
            f"The model has no matrix {unknown[0]}",
            f"Its matrices: {', '.join(known)}.",
            "Correct --lora-targets.",
        )
    if training.frozen_layers > len(model.layers):
        raise UsageError(
            f"The model has {len(model.layers)} layers, not {training.frozen_layers}",
            "--frozen-layers counts from the first.",
            "Correct --frozen-layers.",
        )
    return Workload(numbers=numbers_of(model), model=model, lengths=lengths, training=training)


def from_numbers(
    *,
    params: float,
    active_params: float | None,
    layers: int | None,
    hidden: int | None,
    vocab: int | None,
    lengths: tuple[int, ...],
    training: Training,
    heads_width: int | None = None,
) -> Workload:
    """Return the workload of a model of which a few numbers are known.

    ``heads_width`` is heads x head dimension; without it, the heads together are taken to be as
    wide as the hidden size.
    """
    if training.lora_rank is not None or training.frozen_layers:
        raise UsageError(
            "LoRA and frozen layers need the model's shapes",
            "From a number of parameters alone, what is frozen can't be told.",
            "Give --model config.json.",
        )
    if active_params is not None and active_params > params:
        raise UsageError(
            "More parameters are active than there are",
            f"--active-params {active_params:g}, --params {params:g}.",
            "Correct one of them.",
        )
    one = hidden if heads_width is None else heads_width
    width = None if layers is None or one is None else float(2 * layers * one)
    numbers = Numbers(
        params=params,
        active_params=params if active_params is None else active_params,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        width=width,
        is_mixture=active_params is not None,
    )
    return Workload(numbers=numbers, lengths=lengths, training=training)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path} can't be read", f"{error.strerror}.", "Give the model's config.json."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is no JSON", f"{error}.", "Give the model's config.json."
        ) from error
    if not isinstance(data, dict):
        raise InputError(
            f"{path} is no model configuration",
            f"It holds a {type(data).__name__}, not an object.",
            "Give the model's config.json.",
        )
    return data
