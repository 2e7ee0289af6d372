"""The commands: one table of them, what each does, and the lists in which they are offered."""
