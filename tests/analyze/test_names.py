"""Names as they stand in real traces, and what they mean."""

from __future__ import annotations

import pytest

from gpudiag.analyze import names as n
from gpudiag.analyze.names import DeviceClass, HostClass


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "nccldevkernel_generic",
        "ncclDevKernel_SendRecv",
        "rccl_ReduceScatter",
        "mscclppKernel",
        "oneccl_allreduce",
        "void nvshmemi_transfer_rma",
        "void deep_ep::intranode::dispatch<8>",
        "void moe::ep::internode::combine<4>",
        "void vllm::cross_device_reduce_1stage<__half, 2>",
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "two_shot_all_reduce_kernel",
    ],
)
def test_communication_kernels_are_known_by_name(name):
    """NCCL old and new, RCCL, MSCCL, oneCCL, NVSHMEM, DeepEP, custom and symmetric all-reduce."""
    assert n.is_comm_kernel(name)


@pytest.mark.parametrize(
    "name",
    ["SyncBatchNorm_kernel", "hipblaslt_gemm", "void dma_kernel<float>", "fsdp_unpack_kernel"],
)
def test_kernels_that_others_take_for_communication_are_compute(name):
    """A hip prefix, "dma" or "Sync" in a name make no communication."""
    assert not n.is_comm_kernel(name)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("ampere_sgemm_128x32_tn", True),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", True),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs", True),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2", True),
        ("triton_tem_fused_bmm_12", True),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", True),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", True),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>", False),
        ("triton_poi_fused__scaled_mm__to_copy_clone_div_0", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor>", False),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", False),
        ("void flash::prepare_varlen_num_blocks_kernel<8, false>", False),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<>", False),
    ],
)
def test_tensor_kernels_are_told_by_name_where_no_operator_is_linked(name, tensor):
    """Matmul, convolution and attention kernels of every vendor; nothing else."""
    assert n.is_tensor_kernel(name) is tensor


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("aten::addmm", True),
        ("aten::cudnn_convolution", True),
        ("aten::convolution_backward", True),
        ("aten::miopen_convolution", True),
        ("aten::_scaled_dot_product_flash_attention_backward", True),
        ("flash_attn::_flash_attn_forward", True),
        ("aten::_scaled_grouped_mm", True),
        ("aten::add_", False),
        ("aten::copy_", False),
        ("aten::_softmax", False),
        ("aten::_cudnn_rnn", None),
        ("Torch-Compiled Region: 0/0", None),
        ("FlashAttnFunc", None),
        ("triton_per_fused_add_convolution_div_12", None),
        ("triton_tem_fused_bmm_12", None),
    ],
)
def test_an_operator_decides_what_its_kernels_are_where_it_can(name, verdict):
    """Aten operators decide; compiled regions and custom wrappers leave it to the kernel."""
    assert n.operator_is_tensor(name) is verdict


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", DeviceClass.H2D_PAGEABLE),
        ("Memcpy HtoD (Pinned -> Device)", DeviceClass.H2D_PINNED),
        ("Memcpy HtoD", DeviceClass.H2D),
        ("CopyHostToDevice", DeviceClass.H2D),
        ("Memcpy DtoH (Device -> Pageable)", DeviceClass.D2H),
        ("Memcpy DtoD (Device -> Device)", DeviceClass.D2D),
        ("CopyDeviceToDevice", DeviceClass.D2D),
        ("Memcpy PtoP", DeviceClass.P2P),
        ("Memcpy", DeviceClass.COPY_OTHER),
    ],
)
def test_copies_are_told_apart(name, kind):
    """Direction and host memory kind come from the recorded name, CUDA's and ROCm's."""
    assert n.copy_class(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", HostClass.INPUT),
        ("_SingleProcessDataLoaderIter.__next__", HostClass.INPUT),
        ("torch/serialization.py(944): save", HostClass.CHECKPOINT),
        ("torch/distributed/checkpoint/state_dict_saver.py(80): save", HostClass.CHECKPOINT),
        ("transformers/trainer.py(3000): save_pretrained", HostClass.CHECKPOINT),
        ("evaluate", HostClass.EVAL),
        ("gc.collect", HostClass.GC),
        ("_compile.compile_inner (dynamo_timed)", HostClass.COMPILE),
        ("CachingAutotuner.benchmark_all_configs", HostClass.COMPILE),
        ("gloo:all_reduce", HostClass.HOST_COMM),
        ("Torch-Compiled Region: 0/0", None),
        ("aten::linear", None),
        ("evaluate_function: AddmmBackward0", None),
        ("autograd::engine::evaluate_function: AddmmBackward0", None),
        ("Optimizer.step#AdamW.step", None),
    ],
)
def test_host_spans_match_the_documented_table(name, kind):
    """Loader, checkpoint, eval, gc, compile and host collectives; executing compiled code isn't."""
    assert n.HostNames().span_class(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaStreamSynchronize", HostClass.SYNC),
        ("hipDeviceSynchronize", HostClass.SYNC),
        ("cuEventSynchronize", HostClass.SYNC),
        ("cudaMalloc", HostClass.ALLOCATOR),
        ("cuMemCreate", HostClass.ALLOCATOR),
        ("cuMemcpyHtoD_v2", HostClass.LAUNCH),
        ("cuMemsetD8Async", HostClass.LAUNCH),
        ("cuModuleLoadData", HostClass.COMPILE),
        ("cudaLaunchKernel", HostClass.LAUNCH),
        ("cudaStreamWaitEvent", HostClass.LAUNCH),
    ],
)
def test_runtime_calls_are_told_apart(name, kind):
    """Blocking synchronise calls, allocation, module loading, and everything else."""
    assert n.HostNames().call_class(name) == kind


def test_a_users_own_names_extend_the_table():
    """Configuration adds patterns to the loader, checkpoint, eval, gc and compile rows."""
    names = n.HostNames({"checkpoint": ["^flush_shards$"]})
    assert names.span_class("flush_shards") == HostClass.CHECKPOINT
    assert n.HostNames().span_class("flush_shards") is None
