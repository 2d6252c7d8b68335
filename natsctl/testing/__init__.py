"""Tools to test streams with: a server with the streams that documents describe, a virtual clock, a simulated disk.

`natsctl.testing.jetstream` is where to begin. Only fixtures of pytest need pytest, which the extra `testing` installs.
"""
