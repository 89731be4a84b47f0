"""Trains the models in the box from nothing: one script, one GPU, minutes a size.

    python -m bitcal_tts.tiny.train --out build/tiny --sizes 15m,4m,1m

Problems are drawn, written out, tokenized and packed by all cores; rows start with a document and the loss is
on responses only. The run's length is given in seconds, turned into a number of steps after a warm-up, and
recorded with everything else in `training.json` beside the weights. Packed rows stay in the folder, and another
call with `--tokenizer` (the folder itself) trains further sizes or another `--seed` on the same.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bitcal_tts.tiny.corpus import STYLES, Document, documents
from bitcal_tts.tiny.tokenizer import CHAT_TEMPLATE, train_tokenizer

ROW = 2048
SEEDS_PER_STYLE = 64
CONTINUED = 0.5  # of the learning rate, for a model that goes on from earlier weights


@dataclass(frozen=True)
class Size:
    """A model's shape and its training."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    learning_rate: float
    seconds: float
    rows_per_step: int = 64


SIZES = {
    "15m": Size(width=512, layers=6, heads=8, kv_heads=4, ffn=1024, learning_rate=1.2e-3, seconds=430),
    "4m": Size(width=256, layers=5, heads=4, kv_heads=4, ffn=768, learning_rate=2e-3, seconds=120),
    "1m": Size(width=128, layers=4, heads=2, kv_heads=2, ffn=384, learning_rate=4e-3, seconds=80),
}


class Rows(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Packed token ids and, as labels, the same with everything but responses masked."""

    def __init__(self, ids: NDArray[np.int16], graded: NDArray[np.bool_]) -> None:
        self.ids = torch.from_numpy(ids)
        self.graded = torch.from_numpy(graded)

    def __len__(self) -> int:
        return len(self.ids)

    def save(self, path: Path) -> None:
        """To a file that is whole or not there."""
        part = path.with_name(f".{path.name}.part.npz")
        np.savez(part, ids=self.ids.numpy(), graded=self.graded.numpy())
        part.replace(path)

    def batch(self, index: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows by index, on the device."""
        ids = self.ids[index].to(device, non_blocking=True).long()
        graded = self.graded[index].to(device, non_blocking=True)
        return ids, torch.where(graded, ids, -100)


def chat(document: Document) -> tuple[str, str]:
    """Prompt and response as the chat template renders them."""
    prompt = _chat_template().render(
        messages=[{"role": "user", "content": document.prompt}],
        add_generation_prompt=True,
        enable_thinking=document.style == "thinking",
    )
    return prompt, document.response + "<|im_end|>"


@cache
def _chat_template() -> Any:
    import jinja2

    return jinja2.Template(CHAT_TEMPLATE)


def pack(tokenizer_file: str, style: str, seed: int, count: int) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Draw, render, tokenize and pack `count` documents into rows that each start with a document."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    pairs = [chat(d) for d in itertools.islice(documents("train", seed, style), count)]
    prompts = tokenizer.encode_batch_fast([p for p, _ in pairs], add_special_tokens=False)
    responses = tokenizer.encode_batch_fast([r for _, r in pairs], add_special_tokens=False)
    rows: list[NDArray[np.int16]] = []
    marks: list[NDArray[np.bool_]] = []
    row: list[int] = []
    mark: list[bool] = []
    for prompt, response in zip(prompts, responses, strict=True):
        row += prompt.ids + response.ids
        mark += [False] * len(prompt.ids) + [True] * len(response.ids)
        if len(row) >= ROW:  # the last document is cut; the next row starts a new one
            rows.append(np.array(row[:ROW], dtype=np.int16))
            marks.append(np.array(mark[:ROW]))
            row, mark = [], []
    return np.stack(rows), np.stack(marks)


def build_rows(tokenizer_file: str, count: int, workers: int) -> Rows:
    """Documents of both styles, by all cores."""
    jobs = [(style, 1000 + seed) for style in STYLES for seed in range(SEEDS_PER_STYLE)]
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(pack, tokenizer_file, style, seed, count // len(jobs)) for style, seed in jobs]
        parts = [future.result() for future in futures]
    return Rows(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def build_model(size: Size, tokenizer: Any) -> Any:
    """A Llama of the given shape with fresh weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        intermediate_size=size.ffn,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.width // size.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def fit(size: Size, model: Any, rows: Rows, device: torch.device, seed: int) -> dict[str, Any]:
    """Train in place; the loss curve and what it took."""
    model.to(device).train()
    step_model = torch.compile(model) if device.type == "cuda" else model
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=size.learning_rate, betas=(0.9, 0.95), fused=device.type == "cuda")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    losses: list[tuple[int, float]] = []
    running = torch.zeros((), device=device)
    warm_up, steps, step = 20, 0, 0
    began = time.perf_counter()
    measured = began
    while steps == 0 or step < steps:
        at = step * size.rows_per_step % max(len(rows) - size.rows_per_step, 1)
        ids, labels = rows.batch(order[at : at + size.rows_per_step], device)
        planned = steps or 2000
        done = step / planned
        rate = size.learning_rate * min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = step_model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running += loss.detach()
        step += 1
        if step == warm_up:
            running.item()
            measured = time.perf_counter()
        elif step == 4 * warm_up:
            running.item()
            per_step = (time.perf_counter() - measured) / (3 * warm_up)
            steps = step + max(int((size.seconds - (time.perf_counter() - began)) / per_step), 1)
        if step % 50 == 0:
            losses.append((step, round(running.item() / 50, 5)))
            running.zero_()
            if step % 500 == 0:
                print(f"step {step}/{steps} loss {losses[-1][1]:.4f}", flush=True)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    tokens = step * size.rows_per_step * ROW
    return {
        "steps": step,
        "tokens": tokens,
        "epochs": round(tokens / (len(rows) * ROW), 3),
        "seconds": round(seconds, 1),
        "tokens_per_second": round(tokens / seconds),
        "loss": losses,
    }


def main() -> None:
    """Train the sizes asked for and save them as Transformers checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", default="15m,4m,1m")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and the order of the rows")
    parser.add_argument("--documents", type=int, default=800_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer to reuse")
    parser.add_argument("--init", type=Path, help="a folder with tiny-SIZE checkpoints to go on from, more slowly")
    parser.add_argument("--seconds", type=float, help="training time a size, instead of the recipe's")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    if args.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
        tokenizer.chat_template = CHAT_TEMPLATE
    else:
        sample = [d for style in STYLES for d in itertools.islice(documents("train", 1, style), 6_000)]
        tokenizer = train_tokenizer(text for d in sample for text in chat(d))
    tokenizer.save_pretrained(args.out)
    print(f"tokenizer {len(tokenizer)} in {time.perf_counter() - began:.0f} s", flush=True)
    cut_by = hashlib.sha256((args.out / "tokenizer.json").read_bytes()).hexdigest()[:8]
    packed = args.out / f"rows-{args.documents}-{cut_by}.npz"  # kept for the next sizes and seeds
    if not packed.is_file():
        build_rows(str(args.out / "tokenizer.json"), args.documents, args.workers).save(packed)
    rows = Rows(**np.load(packed))
    data_seconds = time.perf_counter() - began
    print(f"{len(rows)} rows of {ROW} in {data_seconds:.0f} s", flush=True)
    for name in args.sizes.split(","):
        size = SIZES[name]
        if args.seconds:
            size = replace(size, seconds=args.seconds)
        if args.init:
            size = replace(size, learning_rate=size.learning_rate * CONTINUED)
        torch.manual_seed(args.seed)
        model = build_model(size, tokenizer)
        if args.init:
            model = type(model).from_pretrained(args.init / f"tiny-{name}", dtype=torch.float32)
        print(f"{name}: {model.num_parameters():,} parameters", flush=True)
        record = fit(size, model, rows, device, args.seed)
        folder = args.out / (f"tiny-{name}" if args.seed == 0 else f"tiny-{name}-seed{args.seed}")
        model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="14MB")
        tokenizer.save_pretrained(folder)
        record = {
            "recipe": asdict(size),
            "seed": args.seed,
            "continued": args.init is not None,
            "parameters": model.num_parameters(),
            "documents": args.documents,
            "rows": len(rows),
            "row_tokens": ROW,
            "data_seconds": round(data_seconds, 1),
            "machine": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor(),
            "torch": torch.__version__,
            **record,
        }
        (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
        print(
            f"{name}: {record['steps']} steps, {record['tokens_per_second']:,} tokens/s, "
            f"loss {record['loss'][-1][1] if record['loss'] else float('nan'):.4f}",
            flush=True,
        )
        model.to("cpu")
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
