"""Fit the weights of `halting/values/relevance.py` on the solutions of GSM8K's training problems.

    python scripts/fit_relevance.py --gsm8k ../shared/gsm8k/train.jsonl

Every result in a solution is an example; whether it is the final answer is its label. A fifth of the problems is held
out to choose the regularisation; the weights that are written are fitted on all of them. No test problem is used.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bitcal_tts.files import write_atomically
from bitcal_tts.halting.answers.numbers import as_number
from bitcal_tts.halting.values import KINDS, Asking, Candidates
from bitcal_tts.halting.values.numbers import Mention
from bitcal_tts.halting.values.relevance import SIZE

OUT = Path(__file__).parents[1] / "src/bitcal_tts/halting/values/relevance.npy"
STRENGTHS = (0.003, 0.01, 0.03, 0.1)


class Noting(Candidates):
    """Notes every result as it comes out."""

    def __init__(self, asking: Asking) -> None:
        super().__init__(asking, KINDS["numbers"])
        self.noted: list[tuple[list[int], Any]] = []

    def _note(self, value: Any, mention: Mention, subjects: frozenset[str]) -> None:
        self.noted.append((self._relevance.hashed(mention, subjects, value.made_of), mention.value))


def examples(question: str, answer: str) -> list[tuple[list[int], bool]]:
    """Hashed features and label of every result in a solution."""
    solution, _, final = answer.partition("####")
    gold, candidates = as_number(final), Noting(Asking(question))
    for number, line in enumerate(re.sub(r"<<.*?>>", "", solution).split("\n"), 1):
        candidates.feed(line, number, writing=False)
    return [(features, value == gold) for features, value in candidates.noted]


def main() -> None:
    """Fit and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", type=Path, required=True)
    args = parser.parse_args()
    problems = [json.loads(line) for line in args.gsm8k.read_text(encoding="utf-8").splitlines()]
    indices: list[int] = []
    ends, labels, groups = [0], [], []
    for number, problem in enumerate(problems):
        for features, label in examples(problem["question"], problem["answer"]):
            indices += features
            ends.append(len(indices))
            labels.append(label)
            groups.append(number)
    rows = csr_matrix((np.ones(len(indices)), indices, ends), shape=(len(labels), SIZE))
    right, held = np.array(labels), np.array(groups) % 5 == 0
    scores = {}
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=500).fit(rows[~held], right[~held])
        scores[strength] = roc_auc_score(right[held], model.decision_function(rows[held]))
    best = max(scores, key=scores.__getitem__)
    model = LogisticRegression(C=best, max_iter=500).fit(rows, right)
    weights = np.append(model.coef_[0], model.intercept_[0]).astype(np.float32)

    def save(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, weights)

    write_atomically(OUT, save)
    print(f"{len(problems)} problems, {len(labels)} results; held-out AUROC {scores}; C {best}; {OUT}")


if __name__ == "__main__":
    main()
