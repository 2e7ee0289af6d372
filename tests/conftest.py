"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from textual import _wait

# Textual's pilot takes the program to be busy as long as it uses more than 5 % of a core. On a machine that is
# shared, waking up alone can cost that much: every key would wait for a second. What a test needs is waited for
# by a condition.
_wait.SLEEP_IDLE = _wait.SLEEP_GRANULARITY / 4

# Nothing fails here because a machine is slow.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
