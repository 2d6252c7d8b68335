"""Backups of streams and accounts: made, read, verified and restored, over the wire and on disk."""
