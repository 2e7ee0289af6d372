"""Sessions and settings of other agents: read, listed, and taken over as this program's own."""
