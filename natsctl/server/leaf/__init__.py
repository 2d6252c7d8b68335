"""Leaf nodes: the listener for them, and remotes to other servers."""
