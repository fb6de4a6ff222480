"""Tokens of a step from the shapes of an embedding, on real torch and on simulated jobs."""

from __future__ import annotations

import pytest
import require
from simulator import scenarios

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.model_flops.measured import measured
from gpudiag.trace import read_job

SCRIPT_STEPS = 4


def analysis_of(folder):
    return analyze_job(read_job([str(path) for path in folder.glob("*.json*")]))


def record(path, forward, steps=SCRIPT_STEPS):
    """Trace steps of ``forward`` on the CPU, shapes recorded."""
    import torch  # noqa: PLC0415 - only where it is here

    with torch.profiler.profile(record_shapes=True) as profile:
        for _ in range(steps):
            with torch.profiler.record_function(f"ProfilerStep#{profile.step_num}"):
                forward()
            profile.step_num += 1
    profile.export_chrome_trace(str(path))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_the_token_table_is_told_from_the_others_and_a_second_forward_from_the_first(
    tmp_path, reentrant
):
    """Positions and token types are smaller tables; recomputation reads no new tokens."""
    import torch  # noqa: PLC0415 - only where it is here
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415 - the same

    words, places, kinds = (torch.nn.Embedding(size, 8) for size in (50, 16, 2))
    indices = torch.randint(50, (3, 16))

    def embed(scale):
        places_of = places(torch.arange(16))
        return (words(indices) + places_of + kinds(torch.zeros_like(indices))) * scale

    def step():
        scale = torch.ones(8, requires_grad=True)
        if reentrant is None:
            embed(scale).sum().backward()
        else:
            checkpoint(embed, scale, use_reentrant=reentrant).sum().backward()

    record(tmp_path / "rank0.json", step)
    (result,) = analysis_of(tmp_path).ranks
    assert (result.tokens.per_step, result.tokens.sequence) == (48, 16)


@pytest.mark.needs("torch")
def test_packed_tokens_have_no_length_and_a_convnet_has_no_tokens(tmp_path):
    """One dimension of indices tells how many, not how long; no embedding, no number."""
    import torch  # noqa: PLC0415 - only where it is here

    words = torch.nn.Embedding(50, 8)
    packed, convolution = tmp_path / "packed", tmp_path / "conv"
    packed.mkdir()
    convolution.mkdir()
    record(packed / "rank0.json", lambda: words(torch.randint(50, (40,))))
    layer = torch.nn.Conv2d(1, 1, 3)
    record(convolution / "rank0.json", lambda: layer(torch.ones(1, 1, 8, 8)))
    (result,) = analysis_of(packed).ranks
    assert (result.tokens.per_step, result.tokens.sequence) == (40, None)
    found = measured(analysis_of(convolution))
    assert found.tokens_per_step is None
    assert "no embedding" in found.tokens_from


def test_a_jobs_tokens_are_those_of_all_ranks_also_of_missing_ones(tmp_path):
    """Four ranks of 4 x 2048 tokens; with two traces lost, it is said that two were seen."""
    scenarios.build("ddp_slow_loader_rank").write(tmp_path)
    whole = measured(analysis_of(tmp_path))
    ranks = whole.gpus
    assert whole.tokens_per_step == ranks * 4 * 2048
    assert whole.sequence == 2048
    (tmp_path / "rank1.pt.trace.json.gz").unlink()
    part = measured(analysis_of(tmp_path))
    assert part.tokens_per_step == whole.tokens_per_step
    assert part.gpus == ranks
    assert f"{ranks - 1} of them seen" in part.tokens_from


def test_ranks_that_share_tokens_have_no_total(tmp_path):
    """Stages of a pipeline work on the same tokens: a sum would count them twice."""
    scenarios.build("pipeline_1f1b").write(tmp_path)
    found = measured(analysis_of(tmp_path))
    assert found.tokens_per_step is None
    assert found.tokens_from


def test_one_rank_alone_does_not_say_that_the_others_read_other_tokens(tmp_path):
    """A group of four seen from one rank may be tensor parallel: a product would be a guess."""
    scenarios.build("ddp_slow_loader_rank").write(tmp_path)
    for rank in (1, 2, 3):
        (tmp_path / f"rank{rank}.pt.trace.json.gz").unlink()
    found = measured(analysis_of(tmp_path))
    assert found.tokens_per_step is None
    assert "each of the 4 ranks" in found.tokens_from
    assert found.gpus == 4


@pytest.mark.needs("shared")
@pytest.mark.parametrize(("case", "tokens"), [("ddp_normal", 2 * 512), ("fsdp2", 2 * 128)])
def test_ranks_of_ddp_and_fsdp_read_data_of_their_own(case, tokens):
    """Their annotations say so where gloo's collectives name no group."""
    folder = require.SHARED / "traces" / "gloo-faults" / case / "ranks"
    found = measured(analyze_job(read_job([str(folder)])))
    assert found.tokens_per_step == tokens
    assert "the shapes of its embedding, times 2 ranks" in found.tokens_from


@pytest.mark.needs("torch")
def test_micro_batches_add_up_and_two_lookups_of_one_forward_do_not(tmp_path):
    """A backward lies between micro-batches; without one, nothing tells two towers from them."""
    import torch  # noqa: PLC0415 - only where it is here

    words, more = torch.nn.Embedding(50, 8), torch.nn.Embedding(50, 8)
    indices = torch.randint(50, (3, 16))

    def accumulate():
        for _ in range(4):
            words(indices).sum().backward()

    def two_tables():
        (words(indices) + more(indices)).sum().backward()

    for name, step in (("accumulate", accumulate), ("two", two_tables)):
        (tmp_path / name).mkdir()
        record(tmp_path / name / "rank0.json", step)
    (result,) = analysis_of(tmp_path / "accumulate").ranks
    assert result.tokens.per_step == 4 * 48
    found = measured(analysis_of(tmp_path / "two"))
    assert found.tokens_per_step is None
    assert "more than once in a forward" in found.tokens_from
