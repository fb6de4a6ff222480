"""A result above 100 % of the peak: no figure but an error, with what may be behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpudiag.analyze.model_flops.workload import Workload
from gpudiag.errors import GpudiagError
from gpudiag.model import format as fmt
from gpudiag.model.mfu import ConventionMfu

# So far above the peak, a unit is likelier than a mistaken GPU: ms for s, PFLOP/s for TFLOP/s.
_UNIT_ERROR = 20


def refuse_over_peak(
    chosen: ConventionMfu,
    others: Mapping[str, ConventionMfu],
    *,
    workload: Workload,
    gpus: int,
    peak_tflops: float,
) -> None:
    """Raise an error where MFU or HFU is above 1: no GPU executes more than its dense peak."""
    over = {"MFU": chosen.mfu, "HFU": chosen.hfu}
    found = [(name, value) for name, value in over.items() if value is not None and value > 1]
    if not found:
        return
    name, value = found[0]
    enough = math.ceil(gpus * value)
    reasons = [
        *_counted_too_much(name, chosen, others, workload),
        f"the throughput is of more GPUs than {gpus:,}: it takes {enough:,} at least",
        "accumulated micro-batches, ranks or padding are counted twice",
        f"{peak_tflops:g} TFLOP/s is the dense peak of another GPU or dtype than the run's",
    ]
    if value > _UNIT_ERROR:
        reasons.insert(0, "a unit: seconds, tokens a second, TFLOP/s are expected")
    raise GpudiagError(
        f"{name} would be {fmt.share(value)}, and nothing runs above its dense peak",
        f"Likely reasons: {'; '.join(reasons)}.",
        "Correct the numbers; gpudiag doctor --gpus lists dense peaks by dtype.",
    )


def _counted_too_much(
    name: str, chosen: ConventionMfu, others: Mapping[str, ConventionMfu], workload: Workload
) -> list[str]:
    """Return what may be wrong with the FLOPs of a token."""
    reasons = []
    causal = others.get(f"{chosen.id}-causal")
    if causal is not None and causal.mfu is not None and causal.mfu <= 1:
        reasons.append(
            f"causal kernels skip half of attention: --attention causal is {fmt.share(causal.mfu)}"
        )
    if workload.model is None and not workload.numbers.is_mixture:
        reasons.append("--params of a mixture of experts holds all of them: add --active-params")
    if name == "HFU":
        reasons.append(f"less is computed again than --recompute {workload.training.recompute}")
    return reasons
