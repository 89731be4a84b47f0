"""One adapter per engine."""

import logging
import os

# torchao announces at import which of its CUDA libraries do not load; none of them is used here.
os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
