"""Hand-made analyses for the reports' tests: every number chosen, and summing."""

from __future__ import annotations

from dataclasses import replace

from gpudiag.model.analysis import (
    Analysis,
    BlameRow,
    Clock,
    CollectiveRow,
    Finding,
    Gap,
    GapCause,
    Input,
    Job,
    KernelRow,
    RankResult,
    RingTreeRow,
)
from gpudiag.model.tables import Quality

MS = 1_000_000
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def rank_result(rank: int = 0, **changes) -> RankResult:
    """Five periods of 130 ms on one device, 41 % of them waiting for data."""
    per_step = {
        "compute.tensor": 40 * MS,
        "compute.other": 20 * MS + 1,
        "comm.unsplit": 4 * MS,
        "copy.h2d_pinned": 2 * MS,
        "idle.input": 53 * MS,
        "idle.launch": 8 * MS,
        "idle.host_sync": 3 * MS - 1,
    }
    buckets = {name: 5 * ns for name, ns in per_step.items()}
    base = RankResult(
        rank=rank,
        device=rank,
        window_ns=650 * MS,
        window_basis="steps",
        periods=5,
        step_ns_p50=130 * MS,
        host_device_offset_ns=1_250,
        level1_ns={
            "compute": 300 * MS + 5,
            "comm": 20 * MS,
            "copy": 10 * MS,
            "idle": 320 * MS - 5,
        },
        buckets_ns=buckets,
        host_window_ns=650 * MS,
        host_window_basis="steps",
        host_buckets_ns={"host.input": 300 * MS, "host.op": 300 * MS, "host.other": 50 * MS},
        unrecoverable_ns={"idle.launch": 10 * MS},
        steps_ns=[130 * MS] * 5,
        host_steps_ns=[130 * MS] * 5,
        launches=5_120,
        busy_any_ns=330 * MS,
    )
    return replace(base, **changes)


def input_stall(ranks: list[int]) -> Finding:
    return Finding(
        id="input_stall",
        severity="warning",
        share=0.408,
        recoverable_ns_per_step=53 * MS,
        confidence="high",
        ranks=ranks,
        affected=[],
        title="The GPU waits for the next batch",
        evidence=["53.0 ms of each 130 ms step wait in the DataLoader (5 of 5 periods)"],
        advice=["Raise num_workers", "Set persistent_workers=True"],
        buckets=["idle.input"],
    )


def host_sync() -> Finding:
    return Finding(
        id="host_sync",
        severity="info",
        share=0.023,
        recoverable_ns_per_step=3 * MS,
        confidence="medium",
        ranks=[0],
        affected=[],
        title="The host waits for the GPU, then the GPU for the host",
        evidence=["cudaStreamSynchronize under aten::item, 5 times"],
        advice=["Log the loss every 50 steps"],
        buckets=["idle.host_sync"],
    )


def analysis(n_ranks: int = 1, **changes) -> Analysis:
    """A whole job in which every rank waits for its loader."""
    results = [rank_result(rank) for rank in range(n_ranks)]
    numbers = list(range(n_ranks))
    totals: dict[str, int] = {}
    host_totals: dict[str, int] = {}
    for result in results:
        for name, ns in (result.buckets_ns or {}).items():
            totals[name] = totals.get(name, 0) + ns
        for name, ns in (result.host_buckets_ns or {}).items():
            host_totals[name] = host_totals.get(name, 0) + ns
    base = Analysis(
        gpudiag_version="0.1.0",
        inputs=[
            Input(
                path=f"traces/rank{rank}.json.gz",
                format="kineto",
                rank=rank,
                host="dgx-018",
                pid="4242",
                device=rank,
                events=120_345,
                bytes=21_000_000,
            )
            for rank in numbers
        ],
        job=Job(
            world_size=n_ranks,
            ranks=numbers,
            missing_ranks=[],
            gpu_name="NVIDIA H100 80GB HBM3",
            step_ns_p50=130 * MS,
        ),
        clock=Clock(),
        ranks=results,
        job_buckets_ns=totals,
        job_host_buckets_ns=host_totals,
        kernels=[
            KernelRow(
                name="void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)",
                category="compute.tensor",
                count=240 * n_ranks,
                total_ns=200 * MS * n_ranks,
                mean_ns=833_333,
            ),
            KernelRow(
                name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                category="comm",
                count=5 * n_ranks,
                total_ns=20 * MS * n_ranks,
                mean_ns=4 * MS,
            ),
        ],
        gaps=[
            Gap(
                rank=0,
                device=0,
                start_ns=12 * MS,
                dur_ns=53 * MS,
                cause="idle.input",
                host_span=LOADER,
                file_line="train.py:63",
                ended_by="Memcpy HtoD (Pinned -> Device)",
            )
        ],
        gap_causes=[
            GapCause(
                cause="idle.input",
                host_span=LOADER,
                file_line="train.py:63",
                count=5 * n_ranks,
                total_ns=265 * MS * n_ranks,
                longest_ns=61 * MS,
                ranks=numbers,
            ),
            GapCause(
                cause="idle.host_sync",
                host_span="aten::item",
                file_line="train.py:88",
                count=5 * n_ranks,
                total_ns=(15 * MS - 5) * n_ranks,
                longest_ns=4 * MS,
                ranks=numbers,
            ),
        ],
        findings=[input_stall(numbers), host_sync()],
        quality=[
            Quality(
                id="clipped_kernels",
                severity="info",
                count=3,
                message="3 kernels ran over the next one on their stream and were clipped",
            )
        ],
        headline=(
            "41 % of GPU time is lost waiting for data: fix that, 130 → 77.0 ms a step (1.7×)."
        ),
    )
    return replace(base, **changes)


def without_device() -> Analysis:
    """Two CPU ranks: no device activity at all, so no window, only the host view."""
    host = rank_result(
        device=None,
        window_ns=None,
        window_basis=None,
        periods=0,
        step_ns_p50=None,
        host_device_offset_ns=None,
        level1_ns=None,
        buckets_ns=None,
        unrecoverable_ns={},
        steps_ns=[],
        launches=0,
        busy_any_ns=None,
    )
    whole = analysis(2)
    return replace(
        whole,
        ranks=[host, replace(host, rank=1)],
        job=replace(whole.job, gpu_name=None),
        job_buckets_ns={},
        kernels=[],
        gaps=[],
        gap_causes=[],
        findings=[],
        headline="Device activity not recorded: the host spends 46 % of each step on input.",
    )


def damaged() -> Analysis:
    """One device whose file broke off, without step marks, with text from hell."""
    evil = "\x1b[31mred\x07 \u202e\ud800 学习 kernel<" + "x" * 300 + ">"
    one = analysis(1)
    result = replace(
        one.ranks[0], window_basis="device_span", periods=1, step_ns_p50=None, steps_ns=[]
    )
    return replace(
        one,
        ranks=[result],
        inputs=[replace(one.inputs[0], status="partial", message="broke off at byte 20,431,002")],
        job=replace(one.job, gpu_name=None, world_size=8, missing_ranks=[1, 2, 3, 4, 5, 6, 7]),
        kernels=[replace(one.kernels[0], name=evil)],
        gap_causes=[replace(one.gap_causes[0], host_span=evil, file_line=None)],
        findings=[],
        quality=[
            Quality(id="truncated", severity="warning", count=1, message="the file breaks off")
        ],
        headline="59 % of GPU time is lost, 41 % of it to \x1b[31mwaiting.",
    )


def collective(op: str, n_bytes: int | None, **changes) -> CollectiveRow:
    """Fifteen of a kind over 8 ranks that waited 1.2 s and moved for 40 ms, all added up."""
    base = CollectiveRow(
        op=op,
        role="dp",
        role_inferred=True,
        group_size=8,
        bytes=n_bytes,
        dtype="BFloat16",
        count=15,
        wait_ns=1_200 * MS,
        transfer_ns=40 * MS,
        latency_ns=4 * MS,
        bandwidth_ns=35 * MS,
        degraded_ns=1 * MS,
        exposed_ns=1_240 * MS,
        hidden_ns=80 * MS,
        algbw_gb_s=200.0,
        busbw_gb_s=350.0,
        best_busbw_gb_s=371.0,
        alpha_us=23.4,
        last_rank_counts={"3": 5},
    )
    return replace(base, **changes)


def across_ranks() -> Analysis:
    """Eight ranks that wait for rank 3, with a wait that the clocks can't tell and one unsplit."""
    unknown = {"algbw_gb_s": None, "busbw_gb_s": None, "best_busbw_gb_s": None, "alpha_us": None}
    parts = {"latency_ns": None, "bandwidth_ns": None, "degraded_ns": None, "role": None}
    quiet = {"wait_ns": 1 * MS, "wait_unresolved_ns": 1 * MS, "exposed_ns": 41 * MS}
    latency = Finding(
        id="collective_latency",
        severity="warning",
        share=0.06,
        recoverable_ns_per_step=7 * MS,
        confidence="high",
        ranks=list(range(8)),
        affected=list(range(8)),
        title="many small collectives cost more latency than their bytes take",
        evidence=["400 × all_reduce of 16.4 kB over 8 ranks: 310 ms exposed on all ranks"],
        advice=["Send fewer, larger messages"],
        buckets=["comm.transfer"],
    )
    whole = analysis(8)
    return replace(
        whole,
        clock=Clock(aligned=True, offsets_ns={}, half_width_ns=6_000),
        wait_matrix_ns={
            str(r): [0 if r == 3 else (28 + i) * MS for i in range(5)] for r in range(8)
        },
        collectives=[
            collective("all_reduce", 101_000_000),
            collective("reduce_scatter", 16_384, last_rank_counts={}, **quiet),
            collective(
                "send",
                None,
                wait_ns=0,
                transfer_ns=0,
                unsplit_ns=30 * MS,
                exposed_ns=30 * MS,
                last_rank_counts={},
                **unknown,
                **parts,
            ),
        ],
        ring_tree=[
            RingTreeRow(
                op="all_reduce",
                ranks=8 * grown,
                nodes=grown,
                protocol=protocol,
                ring_alpha_us=ring * grown,
                tree_alpha_us=ring + 10,
                nodes_basis="host names in the traces",
            )
            for grown in (1, 2, 4, 8)
            for protocol, ring in (("LL", 15.0), ("Simple", 56.0))
        ],
        blame=[
            BlameRow(
                rank=3,
                host="dgx-018",
                cause="idle.input",
                host_span=LOADER,
                wait_ns=1_000 * MS,
                affected=[0, 1, 2, 4, 5, 6, 7],
                ambiguous_ns=0,
                guaranteed_gain_ns=145 * MS,
            )
        ],
        unattributed_wait_ns=50 * MS,
        findings=[input_stall([3]), latency],
    )


CASES = {
    "across_ranks": across_ranks,
    "one_rank": lambda: analysis(1),
    "eight_ranks": lambda: analysis(8),
    "host_only": without_device,
    "damaged": damaged,
}
