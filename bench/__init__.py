"""Measurements of the program as a person meets it. See README.md beside this file."""
