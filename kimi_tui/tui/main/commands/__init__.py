"""The slash commands: `table` lists all of them, the other modules have their functions, grouped by subject."""
