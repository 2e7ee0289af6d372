"""Snapshots of the working files: scanning, a content-addressed store without git, comparing, and restoring."""
