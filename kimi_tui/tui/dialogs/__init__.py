"""Modal screens: texts to read, the help, the settings, an image, and a dialog that asks for a text."""
