"""Snapshots are many small files: they are kept where making and removing one costs little."""

from support.quick_disk import tmp_path as tmp_path
