"""The screen of stored sessions: listing, searching, opening, renaming, archiving and deleting them."""
