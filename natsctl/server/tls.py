"""The TLS context of a listener, from files."""

import ssl
from typing import Final

from natsctl.server.options import TlsOptions

HANDSHAKE_TIMEOUT_S: Final = 2.0
"""Time a client has for its handshake; the reference server's `tls.timeout`."""


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the listener's context; raises OSError (ssl.SSLError included) when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(options.cert_file, options.key_file)
    if options.ca_file is not None:
        context.load_verify_locations(options.ca_file)
    if options.verify:
        context.verify_mode = ssl.CERT_REQUIRED
    return context
