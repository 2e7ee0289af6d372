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
    DONE: "Done. Without a screen: the turn ended with an answer.",
    FAILED: "It failed: the model, the disk or the program, or an answer that does not fit its schema after one repair.",
    USAGE: "Wrong usage: an option, the configuration, the prompt, or a session that does not exist.",
    CONFLICTS: "Done, but not all of it: files were left alone, or with --strict something was refused.",
    LOCKED: "The session is open in another process.",
    BUDGET: "A budget was used up: steps, tokens, cost or time.",
    CIRCLES: "The agent went in circles and was stopped.",
    INTERRUPTED: "Stopped by Ctrl+C (SIGINT).",
    TERMINATED: "Stopped by SIGTERM or SIGHUP.",
}
"""The exit codes of every command, with their meaning."""
