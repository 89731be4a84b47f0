"""What the sidecar counts, for Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """What is counted, for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("bitcal_requests", "Requests by what became of them", ["kind"], registry=registry)
        self.reasons = Counter(
            "bitcal_ended", "Controlled generations by why they ended", ["reason"], registry=registry
        )
        self.tokens = Counter("bitcal_tokens", "Tokens of controlled generations", ["kind"], registry=registry)
        self.errors = Counter("bitcal_upstream_errors", "Upstream failures", registry=registry)
        self.phase = Gauge(
            "bitcal_stopping", "1 where a promise holds, 0 while one is earned", ["setting"], registry=registry
        )
        self.shadow = Gauge(
            "bitcal_shadow", "Of the share that runs to its end", ["setting", "what"], registry=registry
        )
        self.net = Gauge(
            "bitcal_saved_share", "Of all tokens, those saved, with all that finding out took", ["setting"],
            registry=registry,
        )  # fmt: skip
        self.trials = Gauge(
            "bitcal_trial_tokens", "Of side requests, by which it is found out", ["setting"], registry=registry
        )
        self.open = Gauge("bitcal_open_requests", "Requests that are being answered", registry=registry)
        self.own = Histogram(
            "bitcal_own_seconds_per_token", "Time the sidecar itself takes a token", registry=registry,
            buckets=(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
        )  # fmt: skip

    def pilots(self, status: list[dict[str, Any]]) -> None:
        """What the autopilot knows."""
        for one in status:
            self.phase.labels(one["name"]).set(one["phase"] == "stopping")
            self.net.labels(one["name"]).set(one["net"])
            self.trials.labels(one["name"]).set(one["counts"]["trial_tokens"])
            nothing_yet = {"n": 0, "lost": 0}  # and no rate, which is then not a number
            for what in ("n", "lost", "lost_low", "lost_high", "saved"):
                self.shadow.labels(one["name"], what).set((one["shadow"] or nothing_yet).get(what, float("nan")))
