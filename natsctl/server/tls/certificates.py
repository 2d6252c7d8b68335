"""Certificates as authentication and monitoring need them, read by `cryptography`.

The text of a subject is nats-server's: the attributes it knows, in its own order, last ones first; DC attributes come
apart. Source: crypto/x509/pkix Name.ToRDNSequence.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from natsctl.broker.auth.credentials import (
    CertificateChain,
    DistinguishedName,
    LoginCertificate,
    PeerCertificate,
    TlsFacts,
)
from natsctl.server.files import read_file

if TYPE_CHECKING:
    from cryptography import x509


_ATTRIBUTES: Final = {
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.3": "CN",
    "2.5.4.11": "OU",
    "2.5.4.10": "O",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.9": "STREET",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.6": "C",
}
"""Attributes of a subject in the order of its text."""

_SINGLE: Final = frozenset({"2.5.4.5", "2.5.4.3"})
"""Attributes with only the last one counting."""

_PRINTABLE: Final = re.compile(r"[A-Za-z0-9 '()+,\-./:=?]*")
_PRINTABLE_STRING: Final = 0x13
_UTF8_STRING: Final = 0x0C

_DOMAIN_COMPONENT: Final = "0.9.2342.19200300.100.1.25"

_NAMES: Final = {**_ATTRIBUTES, _DOMAIN_COMPONENT: "DC"}
"""Attributes that users' names may have."""


def certificate_of(der: bytes) -> LoginCertificate:
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    subject = subject_text(certificate.subject)
    parts = [f"DC={a.value!s}" for a in certificate.subject if a.oid.dotted_string == _DOMAIN_COMPONENT]
    emails, dns, uris = _alternative_names(certificate)
    return LoginCertificate(
        subject=subject,
        emails=emails,
        dns_names=dns,
        uris=uris,
        domain_components=",".join([subject, *parts]) if parts else "",
        dn=subject_name(certificate.subject),
    )


def peer_certificate(der: bytes) -> PeerCertificate:
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    return PeerCertificate(shown_subject(certificate.subject), public_key_sha256(der), hashlib.sha256(der).hexdigest())


def public_key_sha256(der: bytes) -> str:
    """Return the digest that `pinned_certs` lists."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(der).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def subject_name(name: x509.Name) -> DistinguishedName | None:
    """Return the whole subject, or None if an attribute has an unnamed type or is not a text."""
    elements = []
    for element in reversed(name.rdns):
        pairs = [(_NAMES.get(attribute.oid.dotted_string), attribute.value) for attribute in element]
        known = [(kind, value) for kind, value in pairs if kind is not None and isinstance(value, str)]
        if len(known) < len(pairs):
            return None
        elements.append(tuple(sorted(known)))
    return tuple(elements)


def subject_text(name: x509.Name) -> str:
    found: dict[str, list[str]] = {}
    for attribute in name:
        values = found.setdefault(attribute.oid.dotted_string, [])
        if attribute.oid.dotted_string in _SINGLE:
            values.clear()
        values.append(_escaped(str(attribute.value)))
    return ",".join(
        "+".join(f"{short}={value}" for value in found[oid]) for oid, short in _ATTRIBUTES.items() if oid in found
    )


def shown_subject(name: x509.Name) -> str:
    """Return a subject as connz shows it: attributes without a short name come last, as numbers and DER in hex."""
    others = [a for a in name if a.oid.dotted_string not in _ATTRIBUTES]
    parts = [f"{a.oid.dotted_string}=#{_der_text(str(a.value)).hex()}" for a in reversed(others)]
    return ",".join(part for part in (subject_text(name), *parts) if part)


def _der_text(text: str) -> bytes:
    tag, body = (_PRINTABLE_STRING if _PRINTABLE.fullmatch(text) else _UTF8_STRING), text.encode()
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + body


def _escaped(value: str) -> str:
    text = "".join("\\" + c if c in ',+"\\<>;' else c for c in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else text


def _alternative_names(certificate: x509.Certificate) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), (), ()
    return (
        tuple(names.get_values_for_type(x509.RFC822Name)),
        tuple(names.get_values_for_type(x509.DNSName)),
        tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
    )


def dns_names(path: Path) -> list[str]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(read_file(path))
    return [name.lower() for name in _alternative_names(certificate)[1]]


def not_after(path: Path) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(read_file(path)).not_valid_after_utc


def chain_of(connection: ssl.SSLObject) -> list[bytes]:
    """Return the certificates that the client sent in DER, its own first."""
    whole = getattr(connection, "get_unverified_chain", None)
    if whole is not None:  # Python 3.13 and later
        return list(whole() or ())
    inner = getattr(getattr(connection, "_sslobj", None), "get_unverified_chain", None)
    if inner is not None:  # Python 3.10 to 3.12 have it without offering it
        return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner() or ()]
    own = connection.getpeercert(binary_form=True)
    return [own] if own else []


def verified_chain_of(connection: ssl.SSLObject) -> list[bytes]:
    """Return the verified chain in DER, the other side's certificate first, or empty."""
    whole = getattr(connection, "get_verified_chain", None)
    if whole is not None:  # Python 3.13 and later
        return list(whole() or ())
    inner = getattr(getattr(connection, "_sslobj", None), "get_verified_chain", None)
    if inner is None:
        raise RuntimeError("this Python does not offer the chains that it verifies")
    return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner() or ()]


def shown_chain(verified: list[bytes], sent: list[bytes]) -> CertificateChain:
    """Return a client's certificates for a service that decides about its login: the verified ones, else those sent."""
    return CertificateChain(bool(verified), tuple(verified or sent))


def identity(
    chain: list[bytes], pinned: frozenset[str], facts: TlsFacts
) -> tuple[str, TlsFacts, LoginCertificate | None]:
    """Return the fault of a client's certificates, the TLS facts with them, and the names in its own."""
    if pinned and (not chain or public_key_sha256(chain[0]) not in pinned):
        return "certificate not pinned", facts, None
    peers = tuple(peer_certificate(der) for der in chain)
    return "", replace(facts, peer_certificates=peers), certificate_of(chain[0]) if chain else None
