"""Milliseconds a decode step: `generate()`, our engine kernel by kernel, and captured as CUDA graphs.

Then what halting saves in time over what it saves in tokens. A model of a given shape with random weights.

    python benchmarks/decode_steps.py --shape 7b --out results/benchmarks/decode_steps.json     (one GPU)
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.engines.base import Completion, Request
from bitcal_tts.engines.checkpoint import Checkpoint
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.files import write_json
from bitcal_tts.traces.record import environment

SHAPES = {
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064},
    "small": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 512},
}  # fmt: skip
PROMPT, SHORT, LONG = 200, 32, 96
Row = dict[str, Any]


def random_model(shape: str, device: torch.device) -> Any:
    """The shape with random weights, in NF4 where there is a GPU; layer by layer: it is never whole in 16 bits."""
    config = Qwen2Config(**SHAPES[shape], max_position_embeddings=40960, tie_word_embeddings=False)
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    torch.manual_seed(0)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            weight = torch.randn(module.weight.shape, dtype=torch.bfloat16, device=device) * 0.02
            make = _quantized if device.type == "cuda" and name != "lm_head" else _linear
            made = make(module, weight)
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, made)
        elif isinstance(module, nn.Embedding):
            weight = torch.randn(module.weight.shape, dtype=torch.bfloat16, device=device)
            module.weight = nn.Parameter(weight, requires_grad=False)
        elif "Norm" in type(module).__name__:
            ones = torch.ones(module.weight.shape, dtype=torch.bfloat16, device=device)
            module.weight = nn.Parameter(ones, requires_grad=False)
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config).to(device)
    model.generation_config.eos_token_id = None
    return model.eval()


def _linear(module: nn.Linear, weight: torch.Tensor) -> nn.Linear:
    made = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    return made


def _quantized(module: nn.Linear, weight: torch.Tensor) -> Any:
    from bitsandbytes.nn import Linear4bit, Params4bit

    made = Linear4bit(
        module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4",
        device=weight.device,
    )  # fmt: skip
    made.weight = Params4bit(weight.cpu(), requires_grad=False, quant_type="nf4").to(weight.device)
    return made


def tokenizer(vocabulary: int) -> Any:
    """A word for every token."""
    words = {f"w{i}": i for i in range(vocabulary)}
    backend = Tokenizer(WordLevel(words, unk_token="w0"))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=None, pad_token="w0")


def prompts(n: int, vocabulary: int) -> list[str]:
    """Random words."""
    rng = np.random.default_rng(0)
    return [" ".join(f"w{i}" for i in rng.integers(1, vocabulary, PROMPT)) for _ in range(n)]


def by_generate(model: Any, batch: int, tokens: int) -> float:
    """Seconds that `generate` takes, with its own attention."""
    ours = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    ids = torch.randint(1, model.config.vocab_size, (batch, PROMPT), device=model.device)
    _wait(model.device)
    began = time.perf_counter()
    with torch.inference_mode():
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    _wait(model.device)
    model.set_attn_implementation(ours)
    return time.perf_counter() - began


def by_engine(engine: TransformersEngine, texts: list[str], tokens: int) -> tuple[float, dict[str, list[int]]]:
    """Seconds that our engine takes with the paper's controller watching, and what was written."""
    method = build_method("bitcal_tts", bits=4, budget=tokens, min_tokens=tokens)
    requests = [Request(str(i), text, method) for i, text in enumerate(texts)]
    began = time.perf_counter()
    done = {c.id: c.token_ids for c in engine.decode(requests, batch_size=len(texts))}
    return time.perf_counter() - began, done


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def steps(model: Any, engines: dict[str, TransformersEngine], batch: int) -> Row:
    """Milliseconds a step of each, between a short and a long decode, so that reading the prompt is not in it."""
    row: Row = {"batch": batch}
    by_generate(model, batch, 4)
    row["generate_ms"] = 1e3 * (by_generate(model, batch, LONG) - by_generate(model, batch, SHORT)) / (LONG - SHORT)
    texts = prompts(batch, model.config.vocab_size)
    written: dict[str, dict[str, list[int]]] = {}
    for name, engine in engines.items():
        by_engine(engine, texts, LONG)  # captures, and sets everything up
        seconds: dict[int, float] = {}
        for n in (SHORT, LONG):
            runs = [by_engine(engine, texts, n) for _ in range(2)]
            seconds[n] = min(run[0] for run in runs)
            written[name] = runs[-1][1]
        row[f"{name}_ms"] = 1e3 * (seconds[LONG] - seconds[SHORT]) / (LONG - SHORT)
    row["same_tokens"] = written["kernels"] == written["captured"]
    row["captured_over_generate"] = row["captured_ms"] / row["generate_ms"]
    print(row, flush=True)
    return row


def halting(engine: TransformersEngine, batch: int, n: int, vocabulary: int) -> Row:
    """Time saved over tokens saved where rows are halted at different times."""
    budget = 768
    ends = np.random.default_rng(1).integers(128, budget, n)
    texts = prompts(n, vocabulary)
    seconds, tokens, rates = {}, {}, {}
    for name, stops in (("full", [budget] * n), ("halted", ends.tolist())):
        requests = [
            Request(str(i), text, build_method("truncate", bits=4, budget=budget, threshold=float(stop), reserve=0))
            for i, (text, stop) in enumerate(zip(texts, stops, strict=True))
        ]
        list(engine.decode(requests[:batch], batch_size=batch))  # captures what it will need
        began = time.perf_counter()
        done = [(time.perf_counter() - began, c) for c in engine.decode(requests, batch_size=batch)]
        seconds[name], tokens[name] = time.perf_counter() - began, sum(len(c.token_ids) for _, c in done)
        rates[name] = _rate_while_full(done)
    time_saved, tokens_saved = (1 - part["halted"] / part["full"] for part in (seconds, tokens))
    steady = 1 - (1 - tokens_saved) * rates["full"] / rates["halted"]
    row = {
        "batch": batch, "n": n, "tokens_saved": tokens_saved, "time_saved": time_saved,
        "time_saved_over_tokens_saved": time_saved / tokens_saved, "seconds": seconds,
        "while_requests_wait": {
            "tokens_a_second": rates, "time_saved": steady, "time_saved_over_tokens_saved": steady / tokens_saved,
        },
    }  # fmt: skip
    print(row, flush=True)
    return row


def _rate_while_full(done: list[tuple[float, Completion]]) -> float:
    """Tokens a second until the last request has joined: while every slot is in use, as on a server that is busy."""
    joined = [end - completion.seconds for end, completion in done]
    last = max(joined)
    shares = [min(1.0, (last - one) / completion.seconds) for one, (_, completion) in zip(joined, done, strict=True)]
    return sum(share * len(c.token_ids) for share, (_, c) in zip(shares, done, strict=True)) / last


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--batches", default="1,8,32,128", help="of the steps; empty: none (%(default)s)")
    parser.add_argument("--halting", type=int, default=32, metavar="BATCH", help="batch of the halting part")
    parser.add_argument("--waves", type=int, default=8, help="its requests a row (%(default)s)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnreachableStopWarning)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = random_model(args.shape, device)
    vocabulary = model.config.vocab_size
    checkpoint = Checkpoint(f"{args.shape} shape", model, tokenizer(vocabulary), device, "", markers=None)
    engines = {"kernels": TransformersEngine(checkpoint, capture=False), "captured": TransformersEngine(checkpoint)}
    found: Row = {"benchmark": "decode_steps", "shape": args.shape, "rows": []}
    found["halting"] = halting(engines["captured"], args.halting, args.waves * args.halting, vocabulary)

    def keep() -> None:
        """After each part: one that is cut off leaves what it has measured."""
        if args.out is not None:
            write_json(args.out, {**found, "environment": environment()})

    keep()
    for batch in map(int, filter(None, args.batches.split(","))):
        found["rows"].append(steps(model, engines, batch))
        keep()


if __name__ == "__main__":
    main()
