"""FLOPs of traces recorded here: as torch counts where it is right, else as counted by hand."""

from __future__ import annotations

import functools

import pytest
from trace_flops.recording import record

from gpudiag.analyze.trace_flops.results import Phase

pytestmark = pytest.mark.needs("torch")

ROWS, WIDTH, INNER = 32, 64, 256
LINEAR = 2 * ROWS * WIDTH * INNER  # one linear layer, one way


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


def mlp(torch):
    nn = torch.nn
    return nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))


def selective(torch):
    """Return a context that keeps the products and recomputes the rest."""
    checkpointing = torch.utils.checkpoint
    keep = (torch.ops.aten.addmm.default, torch.ops.aten.mm.default, torch.ops.aten.bmm.default)

    def policy(_context, operator, *_args, **_kwargs):
        saved = operator in keep
        kind = checkpointing.CheckpointPolicy
        return kind.MUST_SAVE if saved else kind.PREFER_RECOMPUTE

    return functools.partial(checkpointing.create_selective_checkpoint_contexts, policy)


MODES = ("plain", "reentrant", "non_reentrant", "selective")


def step(torch, model, x, mode):
    """Return a function that runs forward and backward under a mode of checkpointing."""
    checkpoint = torch.utils.checkpoint.checkpoint
    forward = {
        "plain": lambda: model(x),
        "reentrant": lambda: checkpoint(model, x, use_reentrant=True),
        "non_reentrant": lambda: checkpoint(model, x, use_reentrant=False),
        "selective": lambda: checkpoint(model, x, use_reentrant=False, context_fn=selective(torch)),
    }[mode]
    return lambda: forward().sum().backward()


@pytest.mark.parametrize(
    ("mode", "recompute"),
    [
        ("plain", 0),
        ("reentrant", 2 * LINEAR),
        ("non_reentrant", LINEAR),  # stops early: the last linear is not run again
        ("selective", 0),  # both products come from the cache
    ],
)
def test_an_mlp_counts_as_torch_counts_it(torch, tmp_path, mode, recompute):
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    found = record(step(torch, mlp(torch), x, mode), tmp_path)
    assert found.flops.full.model_flops == 3 * 2 * LINEAR
    assert found.flops.full.recompute_flops == recompute
    assert found.flops.full.hw_flops == found.torch_flops
    assert found.flops.flops_coverage_frac == 1
    assert found.flops.dominant_dtype == "fp32"


def test_an_operator_cut_short_is_not_counted_as_recomputation(torch, tmp_path):
    nn = torch.nn
    layers = [nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 128)]
    x = torch.randn(32, 64, requires_grad=True)
    found = record(step(torch, nn.Sequential(*layers), x, "non_reentrant"), tmp_path)
    assert found.naive_recompute_flops == 1_572_864
    assert found.flops.full.recompute_flops == 1_048_576
    assert found.flops.full.hw_flops == found.torch_flops


def test_frozen_weights_and_inputs_cost_less(torch, tmp_path):
    model = mlp(torch)
    model[0].weight.requires_grad_(False)
    found = record(step(torch, model, torch.randn(ROWS, WIDTH), "plain"), tmp_path)
    assert found.flops.full.model_flops == 2 * LINEAR + 2 * LINEAR  # both forwards, the last's two
    assert found.flops.full.hw_flops == found.torch_flops


def test_inference_has_no_backward(torch, tmp_path):
    def infer(model=mlp(torch), x=torch.randn(ROWS, WIDTH)):  # noqa: B008 - made once
        with torch.no_grad():
            return model(x)

    found = record(infer, tmp_path)
    assert found.flops.full.hw_flops == found.torch_flops == 2 * LINEAR
    assert {one.phase for one in found.flops.operators} == {Phase.FORWARD}


def test_a_dispatch_mode_doubles_nothing(torch, tmp_path):
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    plain = step(torch, mlp(torch), torch.randn(ROWS, WIDTH, requires_grad=True), "non_reentrant")

    def counted():
        with FlopCounterMode(display=False):
            plain()

    found = record(counted, tmp_path, count_with_torch=False)
    assert found.flops.full.model_flops == 3 * 2 * LINEAR
    assert found.flops.full.recompute_flops == LINEAR


def test_a_differentiated_backward_is_ambiguous_and_no_recomputation(torch, tmp_path):
    model, x = mlp(torch), torch.randn(ROWS, WIDTH, requires_grad=True)

    def penalty():
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()

    found = record(penalty, tmp_path, count_with_torch=False)
    # Two products of the first backward carry sequence numbers, as recomputation does.
    assert found.flops.ambiguous_flops == 2 * LINEAR
    assert found.flops.full.recompute_flops == 0
    # forward 2, first backward 2, backward of that 3 + 2 more of the first layer's backward
    assert found.flops.full.model_flops % LINEAR == 0
    assert found.flops.full.model_flops == 9 * LINEAR


# --- a transformer block: torch counts its attention as nothing on a CPU

BATCH, HEADS, SEQUENCE, HEAD = 2, 4, 32, 16
MODEL = HEADS * HEAD
ATTENTION = 2 * BATCH * HEADS * SEQUENCE**2 * 2 * HEAD  # forward, every pair
VISIBLE = ATTENTION * (SEQUENCE + 1) // (2 * SEQUENCE)
LINEARS = 2 * BATCH * SEQUENCE * MODEL * (3 + 1 + 4 + 4) * MODEL  # forward: qkv, out, up, down
LAST = 2 * BATCH * SEQUENCE * MODEL * 4 * MODEL


def block(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(MODEL, 3 * MODEL), nn.Linear(MODEL, MODEL)
            self.up, self.down = nn.Linear(MODEL, 4 * MODEL), nn.Linear(4 * MODEL, MODEL)

        def forward(self, x):
            q, k, v = (
                one.view(BATCH, SEQUENCE, HEADS, HEAD).transpose(1, 2)
                for one in self.qkv(x).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(BATCH, SEQUENCE, MODEL))
            return x + self.down(functional.gelu(self.up(x)))

    return Block()


@pytest.mark.parametrize(
    ("mode", "linears", "attention"),
    [
        ("plain", 0, 0),
        ("reentrant", LINEARS, ATTENTION),
        ("non_reentrant", LINEARS - LAST, ATTENTION),
        ("selective", 0, ATTENTION),  # products are kept, attention is run again
    ],
)
def test_a_transformers_attention_counts_beside_what_torch_counts(
    torch, tmp_path, mode, linears, attention
):
    x = torch.randn(BATCH, SEQUENCE, MODEL, requires_grad=True)
    found = record(step(torch, block(torch), x, mode), tmp_path)
    full, visible = found.flops.full, found.flops.visible
    assert found.torch_flops == 3 * LINEARS + linears
    assert full.model_flops == 3 * (LINEARS + ATTENTION)
    assert full.recompute_flops == linears + attention
    assert full.attention_recompute_flops == full.extra_flops == ATTENTION // 2
    assert visible.model_flops == 3 * (LINEARS + VISIBLE)
    assert visible.recompute_flops == linears + (VISIBLE if attention else 0)


def test_attention_by_plain_products_counts_as_torch_counts_it(torch, tmp_path):
    backends = torch.nn.attention
    q = torch.randn(BATCH, HEADS, SEQUENCE, HEAD, requires_grad=True)

    def attend():
        with backends.sdpa_kernel(backends.SDPBackend.MATH):
            torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()

    found = record(attend, tmp_path)
    assert found.flops.full.hw_flops == found.torch_flops == 3 * ATTENTION


# --- a convnet with groups: torch counts the gradient of a grouped weight `groups` times

IMAGE, GROUPS = 16, 4
GROUPED = 2 * 2 * IMAGE**2 * 16 * (8 // GROUPS) * 9
TRANSPOSED = 2 * 2 * IMAGE**2 * 16 * 8 * 4
DILATED = 2 * 2 * (2 * IMAGE - 4) ** 2 * 8 * 8 * 9
CONVOLUTIONS = GROUPED + TRANSPOSED + DILATED


def convnet(torch):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, groups=GROUPS),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 2, stride=2),
        nn.Conv2d(8, 8, 3, dilation=2),
    )


@pytest.mark.parametrize(
    ("mode", "recompute"),
    [
        ("plain", 0),
        ("reentrant", CONVOLUTIONS),
        ("non_reentrant", CONVOLUTIONS - DILATED),
        ("selective", CONVOLUTIONS - DILATED),  # no convolution is kept
    ],
)
def test_a_convnet_counts_by_hand(torch, tmp_path, mode, recompute):
    x = torch.randn(2, 8, IMAGE, IMAGE, requires_grad=True)
    found = record(step(torch, convnet(torch), x, mode), tmp_path)
    full = found.flops.full
    assert full.model_flops == 3 * CONVOLUTIONS
    assert full.recompute_flops == recompute
    assert found.torch_flops == full.hw_flops + (GROUPS - 1) * GROUPED


@pytest.mark.parametrize(
    ("make", "input_shape"),
    [
        (lambda nn: nn.Conv1d(4, 6, 3, stride=2), (2, 4, 9)),
        (lambda nn: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
        (lambda nn: nn.Conv2d(4, 6, 3, padding="same", dilation=2), (1, 4, 8, 8)),
        (lambda nn: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (1, 4, 8, 8)),
        (lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (2, 4, 9)),
    ],
)
def test_any_convolution_counts_as_torch_counts_it(torch, tmp_path, make, input_shape):
    x = torch.randn(*input_shape, requires_grad=True)
    found = record(step(torch, make(torch.nn), x, "plain"), tmp_path)
    assert found.flops.full.hw_flops == found.torch_flops > 0
    assert found.flops.flops_coverage_frac == 1


def test_products_that_torch_leaves_out_are_counted(torch, tmp_path):
    matrix, vector = torch.randn(INNER, WIDTH), torch.randn(WIDTH)
    found = record(lambda: (matrix @ vector, vector.dot(vector)), tmp_path)
    assert found.torch_flops == 0
    assert found.flops.full.hw_flops == 2 * INNER * WIDTH + 2 * WIDTH


def test_parts_sum_and_the_types_sum_to_the_whole(torch, tmp_path):
    x = torch.randn(BATCH, SEQUENCE, MODEL, requires_grad=True)
    flops = record(step(torch, block(torch), x, "non_reentrant"), tmp_path).flops
    for one in (flops.full, flops.visible):
        parts = one.model_flops + one.recompute_flops + one.extra_flops
        assert one.hw_flops == parts
    assert sum(one.full.hw_flops for one in flops.by_dtype) == flops.full.hw_flops
    assert sum(one.full_flops for one in flops.operators) == flops.full.hw_flops
    assert sum(one.flops or 0 for one in flops.kernels) == flops.visible.hw_flops
