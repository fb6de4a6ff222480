"""What is counted: a model, known in full or by a few numbers, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudiag.analyze.model_flops.shape import Model
from gpudiag.analyze.model_flops.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The few numbers that closed forms need; None is not known."""

    params: float  # of a mixture of experts: all of them
    active_params: float  # that a token passes through
    embedding_params: float | None = None
    position_params: float = 0
    layers: int | None = None
    hidden: int | None = None
    vocab: int | None = None
    width: float | None = None  # sum over layers of heads x (query dimension + value dimension)
    tied: bool | None = None
    is_mixture: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, the lengths of the sequences that are packed into one, and what is trained."""

    numbers: Numbers
    model: Model | None = None
    lengths: tuple[int, ...] = ()  # one: a plain sequence
    training: Training = field(default_factory=Training)

    @property
    def seq(self) -> int:
        """Return the tokens of one (packed) sequence."""
        return sum(self.lengths)


def numbers_of(model: Model) -> Numbers:
    """Return a model's numbers for the closed forms; MTP layers are not among them."""
    return Numbers(
        params=model.weights,
        active_params=model.active_weights,
        embedding_params=model.embedding_weights,
        position_params=model.position_weights,
        layers=len(model.layers),
        hidden=model.hidden,
        vocab=model.vocab,
        width=sum(layer.core.width for layer in model.layers),
        tied=model.tied,
        is_mixture=any(one.stored > 1 for layer in model.layers for one in layer.linears),
    )
