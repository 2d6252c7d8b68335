"""The certificates that a server presents on a TLS connection."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from natsctl.api.errors import UnreachableError
from natsctl.api.times import format_time

if TYPE_CHECKING:
    from cryptography import x509

    from natsctl.client.manager import Manager


class Certificate(msgspec.Struct, frozen=True):
    """A certificate of the chain that the server showed; `expires_in_ns` is negative once it has expired.

    Times are RFC 3339; `pem` is "" if it is not wanted.
    """

    subject: str
    issuer: str
    serial: str
    not_before: str
    not_after: str
    expires_in_ns: int
    names: list[str]
    is_ca: bool
    key: str
    signature: str
    sha256: str
    ocsp: list[str]
    must_staple: bool
    pem: str = ""


async def chain(manager: Manager) -> list[Certificate]:
    """Return the certificates that the server showed, its own first; raises UnreachableError if there is no TLS."""
    from cryptography.x509 import load_der_x509_certificate

    wrapped = manager.connection.transport_fact("ssl_object")
    if wrapped is None:
        raise UnreachableError(
            f"the connection to {manager.connection.target.shown} is not encrypted",
            hint="connect with tls:// or --tlsca, if the server offers TLS",
        )
    return [_shown(load_der_x509_certificate(raw)) for raw in _encoded(wrapped)]


def _encoded(wrapped: Any) -> list[bytes]:
    """Return the chain in DER. Python has it in public since 3.13; before, under the object that its class wraps."""
    if hasattr(wrapped, "get_unverified_chain"):
        return list(wrapped.get_unverified_chain())
    inner = getattr(wrapped, "_sslobj", None)
    if inner is not None and hasattr(inner, "get_unverified_chain"):
        import _ssl

        return [one.public_bytes(_ssl.ENCODING_DER) for one in inner.get_unverified_chain()]
    return [wrapped.getpeercert(binary_form=True)]


def _shown(certificate: x509.Certificate) -> Certificate:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    ends_ns = _ns(certificate.not_valid_after_utc)
    algorithm = certificate.signature_hash_algorithm
    return Certificate(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        serial=f"{certificate.serial_number:x}",
        not_before=format_time(_ns(certificate.not_valid_before_utc)),
        not_after=format_time(ends_ns),
        expires_in_ns=ends_ns - time.time_ns(),
        names=_names(certificate),
        is_ca=_is_ca(certificate),
        key=_key(certificate),
        signature=algorithm.name if algorithm is not None else "",
        sha256=certificate.fingerprint(hashes.SHA256()).hex(),
        ocsp=_responders(certificate),
        must_staple=_must_staple(certificate),
        pem=certificate.public_bytes(Encoding.PEM).decode(),
    )


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000


def _extension(certificate: x509.Certificate, kind: Any) -> Any:
    from cryptography.x509 import ExtensionNotFound

    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except ExtensionNotFound:
        return None


def _names(certificate: x509.Certificate) -> list[str]:
    from cryptography.x509 import SubjectAlternativeName

    return [str(getattr(one, "value", one)) for one in _extension(certificate, SubjectAlternativeName) or ()]


def _is_ca(certificate: x509.Certificate) -> bool:
    from cryptography.x509 import BasicConstraints

    found = _extension(certificate, BasicConstraints)
    return bool(found and found.ca)


def _key(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    size = getattr(key, "key_size", 0)
    return f"{type(key).__name__.strip('_').removesuffix('PublicKey')}{f' {size}' if size else ''}"


def _responders(certificate: x509.Certificate) -> list[str]:
    from cryptography.x509 import AuthorityInformationAccess
    from cryptography.x509.oid import AuthorityInformationAccessOID

    found = _extension(certificate, AuthorityInformationAccess) or ()
    return [str(one.access_location.value) for one in found if one.access_method == AuthorityInformationAccessOID.OCSP]


def _must_staple(certificate: x509.Certificate) -> bool:
    from cryptography.x509 import TLSFeature, TLSFeatureType

    return TLSFeatureType.status_request in (_extension(certificate, TLSFeature) or ())
