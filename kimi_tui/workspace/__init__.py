"""Snapshots of the working files: content-addressed, without git, and how they come back."""
