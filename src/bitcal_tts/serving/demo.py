"""What `bitcal serve --demo` brings: a model in the box as its own upstream, and a profile that was fitted on it.

`scripts/fit_demo.py` made the profile. It is tied to the file that the model is written to, like any other.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files

from bitcal_tts.halting.profile import Profile

MODEL, KIND = "tiny-15m", "Q4_0"
BUDGET, TEMPERATURE = 512, 0.6
TASK = "gsm_symbolic"
TEMPLATE = {"enable_thinking": True}
PROMPT = "{question}\nSolve it step by step and end with #### and the answer."
EXAMPLES = (
    "There are 8 girls in the yard. If there are 2 times the number of boys in the yard, how many kids are in the "
    "yard?",
    "The Jones family is busy making biscuits. So far, they've made 9125 biscuits. They have 1718 peanut butter "
    "biscuits, 1609 strawberry biscuits, and some vanilla biscuits. How many vanilla biscuits have they made?",
    "Emily has 14 times as many Instagram friends as Michael. James has 11 times as many friends on Instagram as "
    "Michael. If Emily has 1092 friends on Instagram, how many Instagram friends does James have?",
    "A pyramid is made out of 8 white blocks, 2 times as many purple blocks, and an unknown number of green blocks. "
    "If there are 27 blocks in the pyramid in total, how many green blocks are there?",
)
FILE = "demo.json.gz"


def profile() -> Profile | None:
    """Fitted on the model behind llama.cpp's server."""
    file = files("bitcal_tts.serving").joinpath(FILE)
    return Profile.from_dict(json.loads(gzip.decompress(file.read_bytes()))) if file.is_file() else None
