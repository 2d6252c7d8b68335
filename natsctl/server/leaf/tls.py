"""The TLS of connections that we make to hubs."""

from __future__ import annotations

import ssl

from natsctl.server.options import TlsOptions


def client_context(options: TlsOptions | None) -> ssl.SSLContext:
    """Return the context of a remote; raises OSError (ssl.SSLError included) where a file can not be used."""
    options = options or TlsOptions()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if options.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    if options.ca_file is not None:
        context.load_verify_locations(options.ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if options.cert_file is not None and options.key_file is not None:
        context.load_cert_chain(options.cert_file, options.key_file)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
