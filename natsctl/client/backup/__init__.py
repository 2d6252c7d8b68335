"""Backups of streams and accounts: made, read, judged and restored, over the wire and on disk."""
