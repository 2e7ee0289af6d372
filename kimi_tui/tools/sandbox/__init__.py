"""The sandbox of shell commands and search programs: its policy, and its enforcement (Landlock, namespaces, seccomp, bwrap)."""
