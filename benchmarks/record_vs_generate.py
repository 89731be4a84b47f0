"""Recording with all signals against plain `model.generate` at the same batch (goal: at least 0.9x its tokens/s)."""

from __future__ import annotations

from typing import Any

import torch

from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.tiny import models
from common import arguments, load, median, report, requests, timed

BATCH, BUDGET, N = 32, 256, 96


def by_generate(checkpoint: Any, prompts: list[str]) -> int:
    """Stock `generate` in static batches of prompts sorted by length; how many tokens were not padding."""
    encoded = sorted((checkpoint.encode(p) for p in prompts), key=len)
    pad, count = checkpoint.tokenizer.pad_token_id, 0
    ends = torch.tensor([pad, *checkpoint.eos_token_ids])
    for start in range(0, len(encoded), BATCH):
        rows = encoded[start : start + BATCH]
        width = max(map(len, rows))
        ids = torch.tensor([[pad] * (width - len(r)) + r for r in rows])
        mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
        with torch.inference_mode():
            out = checkpoint.model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=BUDGET, do_sample=False, pad_token_id=pad
            )
        count += int((~torch.isin(out[:, width:], ends)).sum())
    return count


def main() -> None:
    """Measure both in turn and report the ratio."""
    args = arguments(__doc__ or "")
    engine = load(args)
    stock = load_checkpoint(models.resolve(args.model), bits=args.bits, template_options={"enable_thinking": False})
    reqs = requests(N, BUDGET)
    prompts = [r.prompt for r in reqs]
    list(engine.decode(reqs[:4], batch_size=4))
    ours, theirs = [], []
    for _ in range(args.repeats):
        seconds, done = timed(lambda: list(engine.decode(reqs, batch_size=BATCH)))
        ours.append(sum(len(c.token_ids) for c in done) / seconds)
        seconds, tokens = timed(lambda: by_generate(stock, prompts))
        theirs.append(tokens / seconds)
    report("record_vs_generate", args, [{
        "batch": BATCH,
        "recording_tokens_per_second": median(ours),
        "generate_tokens_per_second": median(theirs),
        "ratio": median(ours) / median(theirs),
        "goal": ">= 0.9",
    }])  # fmt: skip


if __name__ == "__main__":
    main()
