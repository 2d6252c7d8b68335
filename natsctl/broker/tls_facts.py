"""What a TLS handshake settled, as connz shows it."""

from __future__ import annotations

import msgspec


class PeerCertificate(msgspec.Struct, frozen=True):
    """One certificate of the client's chain; both digests are SHA-256 in hex, of its public key and of itself."""

    subject: str
    subject_pk_sha256: str
    cert_sha256: str


class TlsFacts(msgspec.Struct, frozen=True):
    """`version` is `1.2` or `1.3`, `cipher` the suite's IANA name; `first` where the handshake came before INFO."""

    version: str
    cipher: str
    first: bool = False
    peer_certificates: tuple[PeerCertificate, ...] = ()
