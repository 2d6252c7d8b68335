"""Leaf nodes: accounts of two servers joined by a connection, sans-I/O."""
