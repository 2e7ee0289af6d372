"""The Agent Client Protocol: an editor drives a session over standard input and output (docs/acp.md)."""
