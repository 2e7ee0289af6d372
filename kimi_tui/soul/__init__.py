"""The engine: the loop, the D-Mail mailbox, compaction, approval."""
