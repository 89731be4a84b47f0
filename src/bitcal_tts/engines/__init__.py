"""One adapter per engine."""

import logging
import os

# torchao announces at import which of its CUDA libraries do not load; none of them is used here.
os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
# bitsandbytes asks on a CPU for kernels from a hub that it does without.
for _name in ("torchao", "torch.utils._pytree", "bitsandbytes.backends.cpu.ops"):
    logging.getLogger(_name).setLevel(logging.ERROR)
