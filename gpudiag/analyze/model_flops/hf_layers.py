"""The layers of a Hugging Face model: attention or MLA, MLP or experts, as matrices."""

from __future__ import annotations

from gpudiag.analyze.model_flops.hf_families import Family
from gpudiag.analyze.model_flops.hf_fields import Fields
from gpudiag.analyze.model_flops.shape import ROUTER, Core, Layer, Linear
from gpudiag.errors import UsageError

_OPT_POSITION_OFFSET = 2
# The MLP of models without a gate is so many times as wide as the model, unless said otherwise.
_PLAIN_WIDTH = 4


class Reader:
    """Builds layers from a config's fields and the family's fixed properties."""

    def __init__(self, *, fields: Fields, family: Family) -> None:
        self.fields = fields
        self.family = family
        self.hidden = fields.size("hidden size")
        self.layer_count = fields.size("number of layers")
        self.vocab = fields.size("vocabulary size")
        self._heads = fields.size("attention heads")
        self._kv_heads = self._key_value_heads()
        self._head_dim = fields.size("head dimension", max(1, self.hidden // max(1, self._heads)))

    def layer(self, index: int, window: int | None) -> Layer:
        """Return one layer."""
        linears = (*self._attention(), *self._mlp(index))
        return Layer(linears=linears, core=self._core(window), other_weights=self._other_weights())

    def mtp_layer(self) -> Layer:
        """Return a layer that predicts a further token: a projection of 2 h to h, then a layer."""
        inside = self.layer(self.layer_count - 1, None)
        join = Linear(name="eh_proj", inputs=2 * self.hidden, outputs=self.hidden)
        return Layer(linears=(join, *inside.linears), core=inside.core)

    @property
    def position_weights(self) -> int:
        """Return the parameters of learned positions."""
        if self.family.positions == "none":
            return 0
        offset = _OPT_POSITION_OFFSET if self.family.positions == "learned+2" else 0
        return (self.fields.size("learned positions") + offset) * self.hidden

    @property
    def final_weights(self) -> int:
        """Return the parameters of the norms outside of layers and of the logits' bias."""
        norms = 2 if self.family.embedding_norm else 1
        return norms * self._norm + (self.vocab if self.family.head_bias else 0)

    @property
    def _norm(self) -> int:
        return {"rms": 1, "layer": 2, "none": 0}[self.family.norm] * self.hidden

    def _key_value_heads(self) -> int:
        if self.family.multi_query and self.fields.flag("multi_query", default=True):
            return 1
        return self.fields.size("key-value heads", self._heads)

    def _biased(self, part: str) -> bool:
        own = "mlp_bias" if part == "mlp" else "attention_bias"
        for name in (own, "use_bias"):
            value = self.fields.data.get(name)
            if value is not None:
                return bool(value)
        return part in self.family.biased

    def _core(self, window: int | None) -> Core:
        if self._kv_lora_rank:
            rotary, plain = self._rope_dim, self.fields.number("qk_nope_head_dim")
            value = self.fields.number("v_head_dim")
            return Core(heads=self._heads, qk_dim=plain + rotary, v_dim=value, window=window)
        dim = self._head_dim
        return Core(heads=self._heads, qk_dim=dim, v_dim=dim, window=window)

    @property
    def _kv_lora_rank(self) -> int:
        return self.fields.number("kv_lora_rank")

    @property
    def _rope_dim(self) -> int:
        return self.fields.number("qk_rope_head_dim")

    def _attention(self) -> tuple[Linear, ...]:
        if self._kv_lora_rank:
            return self._latent_attention()
        hidden, biased = self.hidden, self._biased("qkv")
        queries, keys = self._heads * self._head_dim, self._kv_heads * self._head_dim
        return (
            Linear(name="q", inputs=hidden, outputs=queries, biased=biased),
            Linear(name="k", inputs=hidden, outputs=keys, biased=biased),
            Linear(name="v", inputs=hidden, outputs=keys, biased=biased),
            Linear(name="o", inputs=queries, outputs=hidden, biased=self._biased("o")),
        )

    def _latent_attention(self) -> tuple[Linear, ...]:
        """Return the matrices of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""
        hidden, heads, core = self.hidden, self._heads, self._core(None)
        q_rank, kv_rank = self.fields.number("q_lora_rank"), self._kv_lora_rank
        plain, biased = core.qk_dim - self._rope_dim, self._biased("qkv")
        queries = heads * core.qk_dim
        direct = (Linear(name="q", inputs=hidden, outputs=queries),)
        by_rank = (
            Linear(name="q_a", inputs=hidden, outputs=q_rank, biased=biased),
            Linear(name="q_b", inputs=q_rank, outputs=queries),
        )
        kv_width = kv_rank + self._rope_dim
        return (
            *(by_rank if q_rank else direct),
            Linear(name="kv_a", inputs=hidden, outputs=kv_width, biased=biased),
            Linear(name="kv_b", inputs=kv_rank, outputs=heads * (plain + core.v_dim)),
            Linear(name="o", inputs=heads * core.v_dim, outputs=hidden, biased=self._biased("o")),
        )

    def _other_weights(self) -> int:
        """Return a layer's parameters outside of matrices: norms, attention sinks."""
        dim = self._head_dim
        head_norms = {
            "none": 0,
            "head": 2 * dim,
            "width": (self._heads + self._kv_heads) * dim,
        }[self.family.head_norms]
        latent = self.fields.number("q_lora_rank") + self._kv_lora_rank if self._kv_lora_rank else 0
        sinks = self._heads if self.family.sinks else 0
        return self.family.norms_per_layer * self._norm + head_norms + latent + sinks

    def _mlp(self, index: int) -> tuple[Linear, ...]:
        if self._is_sparse(index):
            return self._experts()
        default = None if self.family.gated else _PLAIN_WIDTH * self.hidden
        return self._matrices(self.fields.size("MLP width", default))

    def _is_sparse(self, index: int) -> bool:
        """Tell whether a layer has experts, by the several ways of saying it."""
        if (self.fields.optional("experts") or 0) <= 1:
            return False
        if index in (self.fields.data.get("mlp_only_layers") or ()):
            return False
        every = self.fields.number("decoder_sparse_step", 1) or 1
        latent_every = self.fields.number("moe_layer_freq", 1) or 1
        behind_dense = index >= self.fields.number("first_k_dense_replace")
        return behind_dense and (index + 1) % every == 0 and index % latent_every == 0

    def _experts(self) -> tuple[Linear, ...]:
        count, hidden = self.fields.size("experts"), self.hidden
        chosen = self.fields.size("experts per token")
        if chosen > count:
            raise UsageError(
                f"The model's configuration sends a token to {chosen} of {count} experts",
                "",
                "Correct num_experts_per_tok or the number of experts.",
            )
        width = self.fields.size("expert width")
        biased = self._biased("mlp")
        routed = self._matrices(width, active=chosen, stored=count)
        router = Linear(name=ROUTER, inputs=hidden, outputs=count, biased=biased)
        return (router, *self._shared(width), *routed)

    def _shared(self, width: int) -> tuple[Linear, ...]:
        """Return the matrices of experts that every token passes through."""
        own = self.fields.number("shared_expert_intermediate_size")
        if own:
            gate = Linear(name="shared_router", inputs=self.hidden, outputs=1)
            return (gate, *self._matrices(own, prefix="shared_"))
        total = self.fields.number("n_shared_experts") * width
        return self._matrices(total, prefix="shared_") if total else ()

    def _matrices(
        self, width: int, *, prefix: str = "", active: float = 1, stored: int = 1
    ) -> tuple[Linear, ...]:
        names = ("gate", "up") if self.family.gated else ("up",)
        ways = [(name, self.hidden, width) for name in names] + [("down", width, self.hidden)]
        biased = self._biased("mlp")
        return tuple(
            Linear(
                name=prefix + name,
                inputs=inputs,
                outputs=outputs,
                active=active,
                stored=stored,
                biased=biased,
            )
            for name, inputs, outputs in ways
        )
