"""What stands over a screen: texts to be read, and a text that is asked for."""
