"""python -m nas_rlm is the nas-rlm command."""

import sys

from nas_rlm.cli import main

sys.exit(main())
