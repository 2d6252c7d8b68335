"""Snapshots and restores, and the formats they travel in."""
