"""Facts about the program for every command of it: its version and its exit codes. It imports nothing."""

VERSION = "0.1.0"

DONE = 0
FAILED = 1
USAGE = 2
CONFLICTS = 3
LOCKED = 4
BUDGET = 5
CIRCLES = 6
INTERRUPTED = 130
TERMINATED = 143

EXIT_CODES = {
    DONE: "Done. With -p: the turn ended with an answer.",
    FAILED: "A model, disk or internal error; with --json-schema also an answer that still does not match after one retry.",
    USAGE: "Wrong usage: an option, the configuration, the prompt, or a session that does not exist.",
    CONFLICTS: "Done in part: some files were kept as they are, or, with --strict, something was refused.",
    LOCKED: "The session is open in another process.",
    BUDGET: "A limit was reached: steps, tokens, cost or time.",
    CIRCLES: "The agent went in circles and was stopped.",
    INTERRUPTED: "Stopped by Ctrl+C (SIGINT).",
    TERMINATED: "Stopped by SIGTERM or SIGHUP.",
}
"""The exit codes of every command, with their meaning."""
