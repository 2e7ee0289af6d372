"""The comparison of a world line with the live line, side by side."""
