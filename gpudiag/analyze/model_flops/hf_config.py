"""A Hugging Face config.json as a model: fields read by meaning, nothing guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from gpudiag.analyze.model_flops.hf_families import FAMILIES, GENERIC, Family
from gpudiag.analyze.model_flops.hf_fields import Fields
from gpudiag.analyze.model_flops.hf_layers import Reader
from gpudiag.analyze.model_flops.hf_windows import windows
from gpudiag.analyze.model_flops.shape import Model
from gpudiag.errors import UsageError

Mlp: TypeAlias = Literal["gated", "plain"]
MLPS: tuple[Mlp, ...] = ("gated", "plain")

# Keys under which a model of several parts keeps its language model.
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
# Fields of layers that are no attention, or of a second stack of them.
_OTHER_ARCHITECTURES = {
    "is_encoder_decoder": "an encoder beside the decoder",
    "state_size": "state-space layers",
    "ssm_state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "linear_num_key_heads": "linear attention",
}


def read_config(config: Mapping[str, Any], mlp: Mlp | None = None, mtp: int | None = None) -> Model:
    """Return the model that a config.json describes.

    ``mlp`` says what the file of an unknown model_type can't: whether the MLP has a gate.
    ``mtp`` overrides the number of layers that predict further tokens.
    """
    data, notes = _text_part(config)
    kind = str(data.get("model_type") or "")
    _refuse_other_architectures(data, kind)
    fields = Fields(data)
    family = _family(kind, mlp, fields)
    reader = Reader(fields=fields, family=family)
    seen = windows(fields, family, reader.layer_count)
    layers = tuple(reader.layer(index, window) for index, window in enumerate(seen))
    extra = fields.number("num_nextn_predict_layers") if mtp is None else mtp
    model = Model(
        title=kind or "model",
        hidden=reader.hidden,
        vocab=reader.vocab,
        layers=layers,
        mtp=(reader.mtp_layer(),) * extra,
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        position_weights=reader.position_weights,
        other_weights=reader.final_weights,
        notes=notes,
    )
    fields.check(kind or "no model_type")
    if extra:
        model = replace(model, notes=(*notes, _mtp_note(extra)))
    return model


def _mtp_note(extra: int) -> str:
    layers = "1 layer that predicts" if extra == 1 else f"{extra} layers that predict"
    return f"Counts {layers} further tokens (MTP) and its logits; --mtp 0 leaves it out."


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the language model of a config that has other parts too, and a note of those."""
    for key in _TEXT_PARTS:
        part = config.get(key)
        if isinstance(part, Mapping) and "hidden_size" not in config:
            kind = config.get("model_type", "the model")
            return part, (f"Only the language model of {kind} is counted, not its other parts.",)
    return config, ()


def _refuse_other_architectures(data: Mapping[str, Any], kind: str) -> None:
    for name, what in _OTHER_ARCHITECTURES.items():
        if data.get(name):
            raise UsageError(
                f"The FLOPs of {kind or 'this model'} can't be counted from its configuration",
                f"It has {what} ({name}), which gpudiag does not count.",
                "Give --params, --layers, --hidden and --seq instead: 6 N and attention.",
            )


def _family(kind: str, mlp: Mlp | None, fields: Fields) -> Family:
    if mlp is not None:
        return replace(FAMILIES.get(kind, GENERIC), gated=mlp == "gated")
    if kind in FAMILIES:
        return FAMILIES[kind]
    _note_what_else_is_missing(fields)
    lacks = ["whether its MLP has a gate (SwiGLU, GeGLU) or not", *fields.missing]
    raise UsageError(
        f"The model_type {kind!r} is not known" if kind else "The file has no model_type",
        f"What its configuration does not tell: {'; '.join(lacks)}.",
        "Add --mlp gated or --mlp plain, or give --params, --layers, --hidden and --seq instead.",
    )


def _note_what_else_is_missing(fields: Fields) -> None:
    reader = Reader(fields=fields, family=GENERIC)
    if reader.layer_count:
        reader.layer(0, None)
