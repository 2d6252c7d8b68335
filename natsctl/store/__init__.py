"""The message log: a segmented, checksummed, append-only file log and its memory twin with one interface."""
