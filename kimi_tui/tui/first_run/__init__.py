"""The first run: which model shall be asked."""
