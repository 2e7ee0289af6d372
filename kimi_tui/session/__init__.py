"""Sessions on disk: the context journal, world lines, locks, the record of what was seen."""
