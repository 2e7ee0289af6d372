"""The Textual app: the only part of the program that imports textual."""
