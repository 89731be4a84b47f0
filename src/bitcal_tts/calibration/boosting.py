"""Boosted trees: fitted by LightGBM, kept as plain numbers, applied with numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.openmp import letting_go_at_once

ROUNDS = 300
_PARAMETERS = {
    "objective": "binary",
    "learning_rate": 0.06,
    "num_leaves": 24,
    "max_depth": 10,
    "min_data_in_leaf": 80,
    "lambda_l2": 2.0,
    "feature_fraction": 0.5,
    "feature_fraction_bynode": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 63,
    "seed": 0,
    # The same trees whatever the number of threads and the machine's instructions.
    "deterministic": True,
    "force_col_wise": True,
    "use_missing": False,
    "verbose": -1,
}


def boosted(
    rows: NDArray[np.float32],
    right: NDArray[np.bool_],
    weights: NDArray[np.float64] | None = None,
    *,
    start: NDArray[np.float64] | None = None,
    rounds: int = ROUNDS,
    **parameters: Any,
) -> dict[str, Any]:
    """Trees whose sum is the log-odds of being right.

    Args:
        rows: What is known of each example; none of it may be NaN.
        right: Its label.
        weights: How much it counts.
        start: Log-odds that are there already, and to which the trees add.
        rounds: How many trees.
        **parameters: Of LightGBM, in place of the usual ones.
    """
    lightgbm = load_lightgbm()
    least = max(5, min(int(_PARAMETERS["min_data_in_leaf"]), len(rows) // 100))  # type: ignore[call-overload]
    settings = {**_PARAMETERS, "min_data_in_leaf": least, **parameters}
    data = lightgbm.Dataset(rows, right, weight=weights, init_score=start)
    dumped = lightgbm.train(settings, data, rounds).dump_model()
    trees = [_flat(info["tree_structure"]) for info in dumped["tree_info"]]
    return {"trees": trees, "start": 0.0}


@cache
def load_lightgbm() -> Any:
    """The library, with threads that let go of a core soon.

    Commands that fit call it before they read: a small container has no OpenMP, without which it cannot be loaded.
    """
    try:
        with letting_go_at_once():
            import lightgbm
    except OSError as error:  # it is a shared library that needs OpenMP's
        raise ValueError(
            f"LightGBM cannot be loaded ({error}): install OpenMP's library (Debian, Ubuntu: apt install libgomp1; "
            "macOS: brew install libomp)"
        ) from None
    return lightgbm


def _flat(root: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A tree as lists of nodes; a leaf leads to itself."""
    tree: dict[str, list[Any]] = {"feature": [], "threshold": [], "left": [], "right": [], "value": []}

    def add(node: Mapping[str, Any]) -> int:
        at = len(tree["feature"])
        leaf = "split_feature" not in node
        tree["feature"].append(0 if leaf else node["split_feature"])
        tree["threshold"].append(0.0 if leaf else node["threshold"])
        tree["value"].append(float(node["leaf_value"]) if leaf else 0.0)
        tree["left"].append(at)
        tree["right"].append(at)
        if not leaf:
            tree["left"][at] = add(node["left_child"])
            tree["right"][at] = add(node["right_child"])
        return at

    add(root)
    return tree
