"""Mirrors and sources: streams that feed each other."""
