"""The sandbox of shell commands and search programs: its policy, and enforcing it (Landlock, namespaces, seccomp, bwrap)."""
