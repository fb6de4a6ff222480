"""Which layers of a Hugging Face model see only a window of keys."""

from __future__ import annotations

from gpudiag.analyze.model_flops.hf_families import Family
from gpudiag.analyze.model_flops.hf_fields import Fields
from gpudiag.errors import UsageError

_FULL, _SLIDING = "full_attention", "sliding_attention"
_GEMMA3_PATTERN = 6  # five layers with a window, then one without


def windows(fields: Fields, family: Family, layers: int) -> tuple[int | None, ...]:
    """Return the window of each layer; None sees all keys.

    ``layer_types`` says it where it is there; older files leave it to the model_type: all layers,
    every other, all but each sixth, or those behind max_window_layers.
    """
    kinds = fields.data.get("layer_types")
    if kinds is None:
        slides = [_slides(fields, family, index) for index in range(layers)]
    else:
        slides = [_is_sliding(kind) for kind in kinds]
        if len(slides) != layers:
            raise UsageError(
                f"layer_types names {len(slides)} layers, and the model has {layers}",
                "",
                "Correct the model's configuration.",
            )
    if not any(slides):
        return (None,) * layers
    size = fields.number("sliding_window")
    if not size:
        fields.missing.append("sliding_window")
    return tuple(size if one else None for one in slides)


def _is_sliding(kind: object) -> bool:
    if kind not in {_FULL, _SLIDING}:
        raise UsageError(
            f"layer_types holds {kind!r}",
            f"gpudiag counts {_FULL} and {_SLIDING}.",
            "Give --params, --layers, --hidden and --seq instead: 6 N and attention.",
        )
    return kind == _SLIDING


def _slides(fields: Fields, family: Family, index: int) -> bool:
    if family.window == "alternate":
        return index % 2 == 0
    if family.window == "pattern":
        return (index + 1) % fields.number("sliding_window_pattern", _GEMMA3_PATTERN) != 0
    if not fields.data.get("sliding_window"):
        return False
    if family.window == "switch":
        on = fields.flag("use_sliding_window", default=False)
        return on and index >= fields.number("max_window_layers")
    return family.window == "all"
