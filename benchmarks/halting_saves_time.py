"""Wall-clock saved over tokens saved, halting live at batch 32, against decoding to the end (goal: at least 0.8)."""

from __future__ import annotations

from bitcal_tts import build_method
from common import arguments, load, median, report, requests, timed

BATCH, BUDGET, N = 32, 512, 128


def main() -> None:
    """Measure full and halted decoding in turn."""
    args = arguments(__doc__ or "")
    engine = load(args)
    method = build_method("adaptive", bits=args.bits, budget=BUDGET, min_tokens=48)
    list(engine.decode(requests(4, 16), batch_size=4))
    times: dict[str, list[float]] = {"full": [], "halted": []}
    tokens: dict[str, int] = {}
    for _ in range(args.repeats):
        for name, controller in (("full", None), ("halted", method)):
            reqs = requests(N, BUDGET, controller)
            seconds, done = timed(lambda reqs=reqs: list(engine.decode(reqs, batch_size=BATCH)))  # type: ignore[misc]
            times[name].append(seconds)
            tokens[name] = sum(len(c.token_ids) for c in done)
    time_saved = 1 - median(times["halted"]) / median(times["full"])
    tokens_saved = 1 - tokens["halted"] / tokens["full"]
    report("halting_saves_time", args, [{
        "batch": BATCH,
        "tokens_saved": tokens_saved,
        "time_saved": time_saved,
        "time_saved_over_tokens_saved": time_saved / tokens_saved,
        "goal": ">= 0.8",
    }])  # fmt: skip


if __name__ == "__main__":
    main()
