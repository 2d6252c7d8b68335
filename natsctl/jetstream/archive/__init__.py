"""Snapshots and restores: archives of streams as they are made and taken in."""
