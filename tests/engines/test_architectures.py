"""The architectures people serve, small and random: the engine's greedy tokens are those of `generate`.

Five prompts of different lengths in batches of two, so that rows come and go; sliding windows of 16 tokens where an
architecture has them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bitcal_tts.engines.base import EngineError, Request
from bitcal_tts.engines.checkpoint import Checkpoint, _require_plain_attention
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.halting.methods import to_the_end

SMALL: dict[str, Any] = {
    "vocab_size": 2048, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
SLIDING = {"sliding_window": 16, "use_sliding_window": True, "max_window_layers": 2}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {  # keys and values are made from a small vector, and are of different widths
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 24,
    "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 48, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
}  # fmt: skip
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {}, "qwen2": SLIDING, "qwen3": SLIDING, "qwen3_moe": EXPERTS, "mistral": {"sliding_window": 16},
    "ministral": {"sliding_window": 16}, "mixtral": EXPERTS,
    "gemma2": {"sliding_window": 16, "query_pre_attn_scalar": 16},
    "gemma3_text": {"sliding_window": 16, "query_pre_attn_scalar": 16}, "phi3": {"sliding_window": 16}, "olmo2": {},
    "olmo3": {"sliding_window": 16}, "smollm3": {}, "granite": {}, "stablelm": {}, "cohere": {},
    "cohere2": {"sliding_window": 16}, "glm4": {}, "exaone4": {"sliding_window": 16},
    "gpt_oss": {"sliding_window": 16, **EXPERTS}, "gpt_neox": {}, "lfm2": {}, "nemotron": {}, "seed_oss": {},
    "ernie4_5": {}, "hunyuan_v1_dense": {}, "apertus": {}, "gpt2": {}, "deepseek_v3": LATENT,
}  # fmt: skip
GPT2 = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512, "n_inner": 96}
PROMPTS = [
    "What is 3 + 4?",
    "Tom has 12 apples and eats 5 of them. How many are left?",
    "Count from 1 to 30, slowly, and stop.",
    "A farmer has 40 hens. Each lays 2 eggs a day. He sells a dozen for 3 dollars. How much does he earn in a week?",
    "Hi",
]


def random_model(kind: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    settings = {**SMALL, **ARCHITECTURES.get(kind, {}), **(GPT2 if kind == "gpt2" else {})}
    try:
        config = AutoConfig.for_model(kind, **settings)
    except ValueError as error:
        pytest.skip(f"this Transformers has no {kind}: {str(error).splitlines()[0][:60]}")
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_greedy_tokens_are_those_of_generate(kind: str, engine: Any) -> None:
    model = random_model(kind)
    model.generation_config.eos_token_id = 2
    try:
        _require_plain_attention(kind, model)
    except EngineError as error:
        assert "use BitCal(...) inside model.generate" in str(error)
        pytest.skip("its layers keep a state that cannot leave a batch; refused with the way round")
    checkpoint = Checkpoint(kind, model, engine.tokenizer, torch.device("cpu"), "random")
    budgets = [24, 40, 9, 33, 17]
    requests = [Request(str(i), PROMPTS[i], to_the_end(budgets[i])) for i in range(5)]
    done = {int(c.id): c.token_ids for c in TransformersEngine(checkpoint).decode(requests, batch_size=2)}
    for i, prompt in enumerate(PROMPTS):
        ids = torch.tensor([checkpoint.encode(prompt)])
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=budgets[i], do_sample=False
            )
        wanted = [token for token in out[0, ids.shape[1] :].tolist() if token not in checkpoint.eos_token_ids]
        assert done[i] == wanted, f"prompt {i}"
