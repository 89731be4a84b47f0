"""The parameters of the paper's rule, checked once, with its names and defaults."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitcal_tts.halting.checks import flag, number, whole
from bitcal_tts.halting.confidence import bit_scale, confidence, normalised
from bitcal_tts.halting.request import RequestParameters
from bitcal_tts.halting.words import percent

FULL_PRECISION_BITS = 16.0


class UnreachableStopWarning(UserWarning):
    """The confidence stop of a configuration cannot fire on ordinary text."""


def tail_length(bits: float) -> int:
    """Delta(b), the confirmation horizon after the marker: 32 tokens up to 4 bits, 16 up to 8, 0 above."""
    if bits <= 4:
        return 32
    return 16 if bits <= 8 else 0


@dataclass(frozen=True, kw_only=True)
class Parameters(RequestParameters):
    """Everything that distinguishes the paper's methods from each other.

    `scale`, `tail` and `hidden` switch the three components the paper bundles. Off means what the
    precision-agnostic baseline does: the scale and the tail see 16 bits, the hidden-state weight is
    dropped and the other two renormalised. So bitcal_tts with scale and tail off *is* adaptive.
    """

    effective_bits: float
    halts: bool = True
    chunk_size: int = 16
    entropy_max: float = 10.0
    stop_entropy: float = 2.0
    stop_confidence: float = 0.75
    escalate_entropy: float = 4.0
    min_tokens: int = 128
    min_remaining: int = 32
    weights: tuple[float, float, float] = (0.40, 0.35, 0.25)
    gamma: float = 1.0
    marker: str = "####"
    scale: bool = True
    tail: bool = True
    hidden: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_tokens", "min_remaining"):
            whole(name, getattr(self, name), least=0)
        number("effective_bits", self.effective_bits, least=1.0)
        for name in ("entropy_max", "gamma"):
            value = number(name, getattr(self, name), least=0.0)
            if value == 0.0:
                raise ValueError(f"{name} must be above 0, got {value}")
        for name in ("stop_entropy", "stop_confidence", "escalate_entropy"):
            number(name, getattr(self, name), least=0.0)
        for name in ("halts", "scale", "tail", "hidden"):
            flag(name, getattr(self, name))
        if not isinstance(self.marker, str) or not self.marker:
            raise ValueError(f"marker must be a non-empty string, got {self.marker!r}")
        object.__setattr__(self, "weights", _three_weights(self.weights))
        if not self.hidden and self.weights[0] + self.weights[1] == 0:
            raise ValueError(f"weights must keep a positive sum without the hidden one, got {self.weights}")
        self._warn_if_unreachable()

    @cached_property
    def mixture(self) -> tuple[float, float, float]:
        """The weights in force: normalised, the hidden one dropped where it is switched off."""
        w_entropy, w_trace, w_hidden = self.weights
        return normalised((w_entropy, w_trace, w_hidden if self.hidden else 0.0))

    @cached_property
    def bit_scale(self) -> float:
        """s(b) in force."""
        return bit_scale(self.effective_bits if self.scale else FULL_PRECISION_BITS)

    @cached_property
    def tail_tokens(self) -> int:
        """Delta(b) in force."""
        return tail_length(self.effective_bits if self.tail else FULL_PRECISION_BITS)

    @property
    def reads_hidden(self) -> bool:
        """Whether the hidden-state signal can change a decision."""
        return self.halts and self.mixture[2] > 0

    def confidence(self, entropy: float, trace_stability: float, hidden_stability: float) -> float:
        """c_t under these parameters."""
        c = confidence(
            entropy,
            trace_stability,
            hidden_stability,
            weights=self.mixture,
            scale=self.bit_scale,
            entropy_max=self.entropy_max,
            gamma=self.gamma,
        )
        return float(c)

    def _warn_if_unreachable(self) -> None:
        """Warn where no ordinary text can reach the confidence stop.

        Chunks of prose do not repeat, so from the third chunk on the trace stability is 0 and the
        confidence is bounded by the other two weights. Python shows one such message once a process.
        """
        if not self.halts or self.min_tokens <= 2 * self.chunk_size:
            return
        ceiling = self.confidence(0.0, 0.0, 1.0)
        if ceiling >= self.stop_confidence:
            return
        w_entropy, w_trace, w_hidden = self.mixture
        best = self.confidence(0.0, 1.0, 1.0)
        if best < self.stop_confidence:
            needed = f"even if every chunk repeated, c <= {best:.4g}"
        else:
            share = (self.stop_confidence**self.gamma / self.bit_scale - w_entropy - w_hidden) / w_trace
            needed = f"it would need {percent(round(share, 2))} of all chunk pairs to repeat literally"
        warnings.warn(
            f"the confidence stop of {self.name!r} cannot fire on ordinary text: c <= {ceiling:.4g} "
            f"< stop_confidence = {self.stop_confidence:.4g}; {needed} (docs/methods.md)",
            UnreachableStopWarning,
            stacklevel=1,
        )


def _three_weights(weights: Any) -> tuple[float, float, float]:
    try:
        first, second, third = weights
    except (TypeError, ValueError):
        raise ValueError(f"weights must be three numbers (entropy, trace, hidden), got {weights!r}") from None
    three = (
        number("weights", first, least=0.0),
        number("weights", second, least=0.0),
        number("weights", third, least=0.0),
    )
    if sum(three) == 0:
        raise ValueError(f"weights must not all be zero, got {weights!r}")
    return three
