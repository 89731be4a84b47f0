"""What `bitcal serve --demo` brings: a model in the box as its own upstream, and a profile that was fitted on it.

`scripts/fit_demo.py` made the profile. It is tied to the file that the model is written to, like any other.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files

from bitcal_tts.halting.profile import Profile

MODEL, KIND = "tiny-15m", "Q4_0"
BUDGET, TEMPERATURE = 1536, 0.6
TASK = "stories"
TEMPLATE = {"enable_thinking": True}
PROMPT = "{question}\nSolve it step by step and end with #### and the answer."
EXAMPLES = (
    "Grace buys 5 packs with 19 candles in each. Then she finds 9 more. She sells all of them for $8 each. How many "
    "dollars does she get?",
    "There are 14 eggs on Emma's table. She has 9 brothers. Ada brings 6 crates with 8 eggs in each. How many eggs are "
    "missing until there are 105?",
    "Henry buys 4 packs with 6 marbles in each. A quarter of the marbles are broken and thrown away. How many grams "
    "are all the marbles, at 16 grams each?",
    "David collects 18 stickers a day for 6 days. A third of them go to Sam. Later he gets another 19. It has been "
    "raining for 5 hours. How many stickers does David have now?",
)
FILE = "demo.json.gz"


def profile() -> Profile | None:
    """Fitted on the model behind llama.cpp's server."""
    file = files("bitcal_tts.serving").joinpath(FILE)
    return Profile.from_dict(json.loads(gzip.decompress(file.read_bytes()))) if file.is_file() else None
