"""What a TLS handshake settled, as connz shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """One certificate of the client's chain; both digests are SHA-256 in hex, of its public key and of itself."""

    subject: str
    subject_pk_sha256: str
    cert_sha256: str


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """`version` is `1.2` or `1.3`, `cipher` the suite's IANA name; `first` where the handshake came before INFO."""

    version: str
    cipher: str
    first: bool = False
    peer_certificates: tuple[PeerCertificate, ...] = ()
