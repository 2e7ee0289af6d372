"""A world line beside the live line."""
