"""Tools to test streams with: a server with the streams that documents describe, a virtual clock, a simulated disk.

Start with `natsctl.testing.jetstream`. Only the pytest fixtures need pytest; the extra `testing` installs it.
"""
