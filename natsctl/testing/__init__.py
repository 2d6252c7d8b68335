"""Tools to test streams with: a server with the streams that documents describe, server processes, certificates.

Start with `natsctl.testing.jetstream`. Only the pytest fixtures need pytest; the extra `testing` installs it.
"""
