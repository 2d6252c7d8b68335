"""Backups as tables, without a server: found, split into parts, and read into Arrow columns.

What a task needs goes with it: this package is of the standard library and pyarrow, beside the rewriting of S2 blocks.
The structure of frames, tar headers and records is checked, not the CRC of a frame nor the hash of a record, which
nothing on an executor computes at a bearable price; where a backup has a manifest, a task of its own checks its sum.
"""
