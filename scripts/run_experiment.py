"""The paper's runner: `bitcal run` on a configuration.

python scripts/run_experiment.py --config configs/experiment_gsm8k_minimal.yaml --model Qwen/Qwen2.5-3B-Instruct --n 50
"""

from __future__ import annotations

import sys

from bitcal_tts.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
