"""Confidence from signals, conditioned on the weight precision (Eqs. 4 and 5).

The arithmetic is written once and serves scalars and arrays alike, so that a vectorised sweep computes
the very floats the controller saw.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def bit_scale(bits: float) -> float:
    """s(b): 0.85 up to 4 bits, 1.00 up to 8, 1.05 above."""
    if bits <= 4:
        return 0.85
    return 1.0 if bits <= 8 else 1.05


def normalised(weights: tuple[float, float, float]) -> tuple[float, float, float]:
    """Weights that sum to one."""
    total = sum(weights)
    return (weights[0] / total, weights[1] / total, weights[2] / total)


def confidence(
    entropy: Any,
    trace_stability: Any,
    hidden_stability: Any,
    *,
    weights: tuple[float, float, float],
    scale: float,
    entropy_max: float,
    gamma: float,
) -> Any:
    """c_t for one step (floats in, float out) or for many (arrays in, array out).

    Args:
        entropy: H_t in nats.
        trace_stability: The literal-repetition signal.
        hidden_stability: The hidden-state signal; may be negative.
        weights: (w_e, w_tr, w_hid), summing to one.
        scale: s(b).
        entropy_max: H_max, the entropy that counts as no certainty at all.
        gamma: The calibrator's temperature; 1 leaves the confidence as it is.
    """
    w_entropy, w_trace, w_hidden = weights
    if isinstance(entropy, np.ndarray):
        certainty = 1.0 - np.minimum(np.maximum(entropy / entropy_max, 0.0), 1.0)
        c = (w_entropy * certainty + w_trace * trace_stability + w_hidden * hidden_stability) * scale
        c = np.minimum(np.maximum(c, 0.0), 1.0)
    else:
        certainty = 1.0 - min(max(entropy / entropy_max, 0.0), 1.0)
        c = (w_entropy * certainty + w_trace * trace_stability + w_hidden * hidden_stability) * scale
        c = min(max(c, 0.0), 1.0)
    # numpy's power on both paths: the C library's may differ from it in the last bit.
    return c if gamma == 1.0 else np.power(c, 1.0 / gamma)
