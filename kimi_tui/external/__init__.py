"""Another agent on the timeline of this program: it is driven over the Agent Client Protocol and does the turns of a session.

The session with its context, journal, record and snapshots is this program's own, so that time travel, world lines, changes and
exports work as for its own agent (`soul`). The package `acp` is imported here and in `kimi_tui.acp` alone, and only once an
external agent is used: `agents` and `install` need nothing of it.
"""
