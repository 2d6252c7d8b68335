"""Tools to test streams with: a server with the streams that documents describe, a virtual clock, a simulated disk.

Public, so that users can test their own streams with them; `natsctl.testing.jetstream` is where to begin.
"""
