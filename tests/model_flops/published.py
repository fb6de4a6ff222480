"""Published examples of MFU and FLOPs, and how each is worked out with gpudiag's functions."""

from __future__ import annotations

import json
import re
from functools import cache

import require

from gpudiag.analyze.model_flops import closed_forms
from gpudiag.analyze.model_flops.hf_config import read_config
from gpudiag.analyze.model_flops.shape import Core, Layer, Linear, Model
from gpudiag.analyze.model_flops.training import Count, Training, token_flops
from gpudiag.analyze.model_flops.utilization import tflops_per_gpu, utilization

PATH = require.SHARED / "facts" / "golden_mfu.json"
BRIDGE = Count(attention="causal", router=False, adapters=False)
NEMO_2024 = Count(router=False)


@cache
def golden() -> dict:
    return json.loads(PATH.read_text()) if PATH.exists() else {"examples": []}


def examples() -> dict[str, dict]:
    return {one["id"]: one for one in golden()["examples"]}


def foundry_rows() -> dict[str, dict]:
    rows = golden().get("llm_foundry", {}).get("rows", [])
    return {
        f"{i}-{r['model']}-{r['gpu']}x{r['gpus']}-{r['precision']}": r for i, r in enumerate(rows)
    }


def value_of(example: dict) -> float:
    """Return what gpudiag makes of an example's inputs, in the unit of what was published."""
    for pattern, work_out in HANDLERS:
        if re.match(pattern, example["id"]):
            return work_out(example["inputs"], example["id"])
    raise KeyError(example["id"])


def transformer(
    *,
    h,
    L,  # noqa: N803 - the names of the examples
    nh,
    ffn,
    V,  # noqa: N803 - the same
    nkv=None,
    hd=None,
    glu=3,
    topk=1,
    mffn=None,
    window=None,
    **_,
) -> Model:
    """Return a model of equal layers; every other one with a window where there is one."""
    dim = hd or h // nh
    width = mffn or ffn
    names = ("gate", "up", "down")[3 - glu :]
    linears = (
        Linear(name="q", inputs=h, outputs=nh * dim),
        Linear(name="k", inputs=h, outputs=(nkv or nh) * dim),
        Linear(name="v", inputs=h, outputs=(nkv or nh) * dim),
        Linear(name="o", inputs=nh * dim, outputs=h),
        *(
            Linear(
                name=name,
                inputs=width if name == "down" else h,
                outputs=h if name == "down" else width,
                active=topk,
                stored=topk,
            )
            for name in names
        ),
    )
    layers = tuple(
        Layer(
            linears=linears,
            core=Core(heads=nh, qk_dim=dim, v_dim=dim, window=window if index % 2 == 0 else None),
        )
        for index in range(L)
    )
    return Model(title="example", hidden=h, vocab=V, layers=layers)


def percent(tflops: float, peak: float) -> float:
    return 100 * utilization(tflops, peak)


def share_of_peak(inputs: dict, _name: str) -> float:
    return percent(inputs["tflops"], inputs["peak_tflops"])


def palm_mfu(inputs: dict, _name: str) -> float:
    width = 2 * inputs["L"] * inputs["H"] * inputs["Q"] if "L" in inputs else 0
    per_token = closed_forms.palm(inputs["N"], width, inputs.get("T", 0))
    tokens = inputs.get("tokens_per_s") or inputs["steps_per_s"] * inputs["batch"] * inputs["seq"]
    rate = tflops_per_gpu(
        flops_per_token=per_token,
        tokens_per_s=tokens,
        gpus=inputs.get("chips") or inputs["gpus"],
    )
    return percent(rate, inputs["peak_tflops"])


def palm_hfu(inputs: dict, _name: str) -> float:
    return inputs["mfu"] * inputs["flops_ratio"]


def gpt3(inputs: dict, _name: str) -> float:
    width = 2 * inputs["L"] * inputs["H"] * inputs["Q"]
    with_attention = closed_forms.palm(inputs["N"], width, inputs["T"])
    ratio = with_attention / closed_forms.six_n(inputs["N"])
    return percent(inputs["nonattn_tflops"] * ratio, inputs["peak_tflops"])


def gpt_form(inputs: dict) -> dict:
    return {
        "batch": inputs["global_batch"],
        "layers": inputs["layers"],
        "hidden": inputs["hidden"],
        "seq": inputs["seq"],
        "vocab": inputs["vocab"],
    }


def step_tflops(step_flops: float, inputs: dict) -> float:
    return step_flops / inputs["iter_s"] / inputs["gpus"] / 1e12


def korthikanti(inputs: dict, name: str) -> float:
    flops = closed_forms.korthikanti(**gpt_form(inputs), recompute="hfu" in name)
    return percent(step_tflops(flops, inputs), inputs["peak_tflops"])


def mt_nlg(inputs: dict, _name: str) -> float:
    return step_tflops(closed_forms.narayanan(**gpt_form(inputs)), inputs)


def days(inputs: dict, _name: str) -> float:
    seconds = closed_forms.training_seconds(
        tokens=inputs["tokens"],
        params=inputs["params"],
        gpus=inputs["gpus"],
        tflops_per_gpu=inputs["tflops"],
    )
    return seconds / 86_400


def nanogpt_palm(inputs: dict, _name: str) -> float:
    width = 2 * inputs["L"] * inputs["H"] * inputs["Q"]
    return closed_forms.palm(inputs["N"], width, inputs["T"]) * inputs["T"]


def nanogpt_exact(inputs: dict, _name: str) -> float:
    model = transformer(
        h=inputs["n_embd"],
        L=inputs["n_layer"],
        nh=inputs["n_head"],
        ffn=4 * inputs["n_embd"],
        V=inputs["vocab"],
        glu=2,
    )
    per_token = token_flops(model, (inputs["block"],), Training(), Count()).model
    return per_token * inputs["block"]


def nanogpt_mfu(inputs: dict, _name: str) -> float:
    per_sequence = value_of(examples()["nanogpt_exact_flops"])
    rate = per_sequence * inputs["seqs"] / inputs["iter_s"] / 1e12
    return percent(rate, inputs["peak_tflops"])


def torchtitan_tflops(inputs: dict, _name: str) -> float:
    model = examples()["torchtitan_log_llama3_8b"]["inputs"]
    per_token = closed_forms.torchtitan(
        params=model["N"],
        embedding=model["embedding"],
        width=model["L"] * model["H"] * model["head_dims_sum"],
        seq=model["T"],
    )
    return tflops_per_gpu(flops_per_token=per_token, tokens_per_s=inputs["tps"], gpus=1)


def torchtitan_mfu(inputs: dict, name: str) -> float:
    return percent(torchtitan_tflops(inputs, name), inputs.get("peak_tflops", 989))


def exact_tflops(model: Model, inputs: dict, count: Count, training: Training) -> float:
    flops = token_flops(model, (inputs.get("seq", 1),), training, count)
    rate = {"tokens_per_s": inputs["tokens_s_gpu"], "gpus": 1}
    return tflops_per_gpu(flops_per_token=flops.model, **rate)


def full_attention(inputs: dict, _name: str) -> float:
    return exact_tflops(transformer(**inputs), inputs, NEMO_2024, Training())


def causal(inputs: dict, _name: str) -> float:
    shape = {"ffn": inputs.get("mffn"), **inputs}
    return exact_tflops(transformer(**shape), inputs, BRIDGE, Training())


def lora(inputs: dict, _name: str) -> float:
    """Return it for sequences so short that attention is nothing, adapters left out."""
    model = transformer(**inputs)
    flops = token_flops(model, (1,), Training(lora_rank=16), BRIDGE)
    attention = 3 * flops.attention
    rate = {"tokens_per_s": inputs["tokens_s_gpu"], "gpus": 1}
    return tflops_per_gpu(flops_per_token=flops.model - attention, **rate)


def deepseek(inputs: dict, _name: str) -> float:
    return exact_tflops(read_config(DEEPSEEK_V3), inputs, BRIDGE, Training())


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}

NEMO_UNIT = {"gpt3": 2, "llama2": 3, "llama3": 3, "nemotron": 2}


def nemo_unit(inputs: dict, name: str) -> float:
    kind = name.removeprefix("nemo_unit_")
    shape = {"layers": 12, "hidden": 768, "seq": 128}
    if kind == "bert":
        return closed_forms.korthikanti(batch=1, vocab=inputs["vocab"], **shape)
    model = transformer(h=768, L=12, nh=12, ffn=3072, V=inputs["vocab"], glu=NEMO_UNIT[kind])
    return token_flops(model, (128,), Training(), BRIDGE).model * 128


def deepspeed(inputs: dict, _name: str) -> float:
    forward = examples()["deepspeed_fwd_tflops"]["inputs"]["fwd_gflop"]
    [(key, milliseconds)] = [(k, v) for k, v in inputs.items() if k.endswith("_ms")]
    times = {"fwd_ms": 1, "bwd_ms": 2, "fwd_bwd_ms": 3}[key]
    return times * forward / milliseconds


def two_linears() -> Model:
    """Return a block of two equal matrices and no attention."""
    linears = (
        Linear(name="up", inputs=64, outputs=64),
        Linear(name="down", inputs=64, outputs=64),
    )
    layer = Layer(linears=linears, core=Core(heads=0, qk_dim=0, v_dim=0))
    return Model(title="two linears", hidden=0, vocab=0, layers=(layer,))


def counter(_inputs: dict, name: str) -> float:
    """Return what torch's FlopCounterMode was measured to say of a few modules."""
    if "ckpt" in name:
        recompute = "full-early-stop" if "nonreentrant" in name else "full"
        flops = token_flops(two_linears(), (1,), Training(recompute=recompute), Count())
        return flops.hardware / flops.linear
    if "conv" in name:  # 2 images, 16 -> 16 channels in 4 groups, 3 x 3 to 8 x 8: three products
        return 3 * 2 * 2 * 16 * 64 * (16 // 4) * 9
    linear = Linear(name="linear", inputs=64, outputs=128).forward_flops * 40
    return linear * (3 if name == "flopcounter_linear" else 2)


HANDLERS = (
    (r"palm540b_hfu", palm_hfu),
    (r"palm540b|mtnlg530b|gopher", palm_mfu),
    (r"gpt3_175b_v100", gpt3),
    (r"korthikanti", korthikanti),
    (r"mtnlg_tflops", mt_nlg),
    (r"narayanan_pct|mcore_h100|llama3_405b", share_of_peak),
    (r"narayanan_.*_days", days),
    (r"nanogpt_palm", nanogpt_palm),
    (r"nanogpt_exact", nanogpt_exact),
    (r"nanogpt_mfu", nanogpt_mfu),
    (r"torchtitan_log_llama3_8b$", torchtitan_tflops),
    (r"torchtitan", torchtitan_mfu),
    (r"nemo2407|mlm_example", full_attention),
    (r"bridge.*lora", lora),
    (r"bridge.*deepseek", deepseek),
    (r"bridge", causal),
    (r"nemo_unit", nemo_unit),
    (r"deepspeed", deepspeed),
    (r"flopcounter", counter),
)
