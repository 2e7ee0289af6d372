"""The sessions on disk: found, looked at, gone on with, and put in order."""
