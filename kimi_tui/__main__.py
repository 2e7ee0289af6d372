"""`python -m kimi_tui` is the command `kimi-tui`."""

from __future__ import annotations

import sys

from kimi_tui.cli import main

sys.exit(main())
