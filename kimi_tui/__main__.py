"""`python -m kimi_tui` is the command `kimi-tui`."""

from __future__ import annotations

import os
import sys

# `-m` puts the work folder before all installed packages; its files do not belong to this program.
try:
    is_first = sys.path[:1] in ([""], [os.getcwd()])
except FileNotFoundError:  # the folder was removed
    is_first = True
if is_first:
    del sys.path[0]

from kimi_tui.cli import main

sys.exit(main())
