"""What a rewind would take, shown before it happens, and the actions to choose from."""
