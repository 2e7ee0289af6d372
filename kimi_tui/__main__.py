"""`python -m kimi_tui` is the command `kimi-tui`."""

from __future__ import annotations

import os
import sys

# What is in the work folder is not this program's, and `-m` puts it before all that is installed.
try:
    is_first = sys.path[:1] in ([""], [os.getcwd()])
except FileNotFoundError:  # it was removed
    is_first = True
if is_first:
    del sys.path[0]

from kimi_tui.cli import main

sys.exit(main())
