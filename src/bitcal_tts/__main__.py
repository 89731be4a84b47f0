"""`python -m bitcal_tts` is `bitcal`."""

import sys

from bitcal_tts.cli import main

sys.exit(main())
