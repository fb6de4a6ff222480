"""A model as the matrix products that a token passes through: what FLOPs are counted from."""

from __future__ import annotations

from dataclasses import dataclass

ROUTER = "router"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A weight matrix, or equal matrices of which a token passes through some (experts)."""

    name: str
    inputs: int
    outputs: int
    active: float = 1  # matrices that one token passes through
    stored: int = 1  # matrices that there are
    biased: bool = False

    @property
    def forward_flops(self) -> float:
        """Return the FLOPs of one token: 2 x inputs x outputs x active; a bias counts nothing."""
        return 2 * self.inputs * self.outputs * self.active

    @property
    def weights(self) -> int:
        """Return the parameters that are stored."""
        return self.stored * self._size

    @property
    def active_weights(self) -> float:
        """Return the parameters that one token passes through."""
        return self.active * self._size

    @property
    def _size(self) -> int:
        return self.inputs * self.outputs + (self.outputs if self.biased else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Attention proper: queries x keys, and scores x values."""

    heads: int  # query heads: fewer key heads (GQA) make the projections smaller, not this
    qk_dim: int  # per head
    v_dim: int
    window: int | None = None  # a token sees at most so many keys

    @property
    def width(self) -> int:
        """Return heads x (qk_dim + v_dim): FLOPs per token and visible key are twice that."""
        return self.heads * (self.qk_dim + self.v_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A block: its matrices in the order in which they are applied, and its attention."""

    linears: tuple[Linear, ...]
    core: Core
    other_weights: int = 0  # norms and the like: parameters without FLOPs


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder: embedding, layers, logits; layers that predict further tokens (MTP) apart."""

    title: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    mtp: tuple[Layer, ...] = ()
    tied: bool = False  # the logits' matrix is the embedding's
    position_weights: int = 0  # learned positions
    other_weights: int = 0
    notes: tuple[str, ...] = ()

    @property
    def embedding_weights(self) -> int:
        """Return the parameters of the token embedding."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """Return all parameters; MTP layers left out, as parameter counts of models do."""
        return self._without_layers + sum(
            sum(one.weights for one in layer.linears) + layer.other_weights for layer in self.layers
        )

    @property
    def active_weights(self) -> float:
        """Return the parameters that one token passes through: experts not chosen left out."""
        return self._without_layers + sum(
            sum(one.active_weights for one in layer.linears) + layer.other_weights
            for layer in self.layers
        )

    @property
    def _without_layers(self) -> int:
        tables = self.embedding_weights * (1 if self.tied else 2)
        return tables + self.position_weights + self.other_weights
