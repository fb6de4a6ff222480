"""Record what transformers and torch say of small models, for test_hf_config.py.

    pip install torch transformers
    python tests/model_flops/record_counts.py > tests/model_flops/counts.json

Each entry: the config.json, the number of parameters, and FlopCounterMode's count of one forward
pass over SEQ tokens. Experts run one by one ("eager"): torch counts their grouped products as 0.
"""

from __future__ import annotations

import json

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

SEQ = 32
COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 112,
    "vocab_size": 250,
    "max_position_embeddings": 64,
}
GPT = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64, "vocab_size": 250}
LATENT = {
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "num_key_value_heads": 4,
    "topk_group": 1,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
SHAPES = {
    "llama": COMMON,
    "mistral": COMMON,
    "mixtral": COMMON | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": COMMON,
    "qwen2_moe": COMMON
    | EXPERTS
    | {"shared_expert_intermediate_size": 80, "decoder_sparse_step": 2},
    "qwen3": COMMON | {"head_dim": 24},
    "qwen3_moe": COMMON | EXPERTS | {"head_dim": 24, "mlp_only_layers": [1]},
    "gemma": COMMON | {"head_dim": 24},
    "gemma2": COMMON | {"head_dim": 24, "sliding_window": 8},
    "gemma3_text": COMMON | {"head_dim": 24, "sliding_window": 8, "num_hidden_layers": 7},
    "phi3": COMMON,
    "deepseek_v2": COMMON
    | LATENT
    | {"q_lora_rank": 24, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 1},
    "deepseek_v3": COMMON
    | LATENT
    | {"q_lora_rank": None, "n_shared_experts": 1, "first_k_dense_replace": 2, "n_group": 2},
    "gpt_oss": COMMON
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 24, "sliding_window": 8},
    "olmo": COMMON,
    "olmo2": COMMON,
    "granite": COMMON,
    "smollm3": COMMON,
    "cohere": COMMON,
    "gpt2": GPT,
    "gpt_neox": {k: v for k, v in COMMON.items() if k != "num_key_value_heads"},
    "gpt_bigcode": GPT,
    "gptj": GPT | {"rotary_dim": 16},
    "opt": {
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "ffn_dim": 112,
        "vocab_size": 250,
        "max_position_embeddings": 64,
        "word_embed_proj_dim": 64,
    },
    "bloom": {"hidden_size": 64, "n_layer": 4, "n_head": 4, "vocab_size": 250},
    "phi": COMMON | {"num_key_value_heads": 4},
    "starcoder2": COMMON,
    "nemotron": COMMON,
}
# What a config.json needs of all that transformers writes into one.
DROPPED = ("transformers_version", "_name_or_path", "architectures", "id2label", "label2id")


def recorded(kind: str) -> dict:
    config = CONFIG_MAPPING[kind](**SHAPES[kind], pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.arange(SEQ)[None] % 200, use_cache=False)
    written = json.loads(config.to_json_string(use_diff=True))
    return {
        "config": {key: value for key, value in written.items() if key not in DROPPED},
        "params": sum(one.numel() for one in model.parameters()),
        "forward_flops": counter.get_total_flops(),
    }


if __name__ == "__main__":
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = [f"  {json.dumps(kind)}: {json.dumps(recorded(kind))}" for kind in SHAPES]
    print(f'{{"seq": {SEQ}, "versions": {json.dumps(versions)}, "models": {{')
    print(",\n".join(lines) + "\n}}")
