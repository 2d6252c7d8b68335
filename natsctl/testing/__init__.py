"""Tools to test streams with: a virtual clock, a simulated disk, servers as processes.

Public, so that users can test their own streams with them.
"""
