"""Sessions are stored where syncs cost nothing: nearly every test of them syncs, and on a disk it would wait for that."""

from support.quick_disk import tmp_path as tmp_path
