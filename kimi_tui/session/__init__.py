"""Sessions on disk: context, journal of operations, world lines, undo, locks, images, import and fork."""
