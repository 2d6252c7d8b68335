"""Leaf nodes on the network: the listener, and the remotes that are dialled."""
