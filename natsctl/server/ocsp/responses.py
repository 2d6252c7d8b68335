"""OCSP responses: requests for them, their signatures and their validity.

A response is taken where the certificate's authority has signed it, or a responder whose certificate it contains, which
that authority has signed for this use. Rules and texts are those of nats-server and of the library that it uses; where
a response has several certificates, only the first counts.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from natsctl.api.times import ZERO_TIME, format_time
from natsctl.api.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography import x509

MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Longest response that is read; one with a responder's certificate has 2 to 4 KiB."""

MAX_RESPONDERS: Final = 8
"""Responders of one certificate that are asked."""

STATUS_REQUEST_OID: Final = bytes.fromhex("06082b06010505070118")
"""DER of the extension by which a certificate demands a staple: id-pe-tlsfeature, RFC 7633."""

Status = Literal["good", "revoked", "unknown"]


class InvalidResponseError(ValueError):
    """Bytes that are no response about the certificate, or one that nobody who may has signed."""


class InvalidCertificateError(ValueError):
    """A certificate with extensions that cannot be read."""


class Response(NamedTuple):
    """One verified response about one certificate; its dates are not checked yet."""

    der: bytes
    status: Status
    this_update_ns: int
    next_update_ns: int | None
    delegated: bool
    """The signer is another than the authority."""
    authorised: bool
    """The signer is the authority, or has its permission to sign responses."""

    @property
    def next_update(self) -> str:
        """The end of validity, as log lines show it."""
        return ZERO_TIME if self.next_update_ns is None else format_time(self.next_update_ns)


def fingerprint(der: bytes) -> str:
    """Return the name of a certificate in the cache and in events."""
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def demands_staple(der: bytes) -> bool:
    """Return whether a certificate has the extension "must staple"."""
    if STATUS_REQUEST_OID not in der:
        return False
    from cryptography import x509

    try:
        features = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.TLSFeature).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return x509.TLSFeatureType.status_request in features


def responders_of(certificate: x509.Certificate) -> list[str]:
    """Return the URLs at which a certificate's status is to be asked for, as far as they are of the web.

    Raises InvalidCertificateError: a certificate that cannot be read must not pass for one that names none.
    """
    from cryptography import x509
    from cryptography.x509.oid import AuthorityInformationAccessOID

    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except x509.ExtensionNotFound:
        return []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as why:
        raise InvalidCertificateError(str(why)) from why
    ocsp = AuthorityInformationAccessOID.OCSP
    found = [str(one.access_location.value) for one in access if one.access_method == ocsp]
    return [url for url in found if _is_web(url)][:MAX_RESPONDERS]


def _is_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def request_for(certificate: x509.Certificate, issuer: x509.Certificate) -> bytes:
    """Return the DER of a request; SHA-1, which names the issuer here and protects nothing, is what responders know."""
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.ocsp import OCSPRequestBuilder

    builder = OCSPRequestBuilder().add_certificate(certificate, issuer, SHA1())  # nosec B303 # RFC 5019 asks for it
    request = builder.build()
    return request.public_bytes(Encoding.DER)


def parse_response(der: bytes, certificate: x509.Certificate, issuer: x509.Certificate) -> Response:
    """Return the response about a certificate that `issuer` has issued; raises InvalidResponseError."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509 import ocsp

    try:
        response = ocsp.load_der_ocsp_response(der)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            status = response.response_status.name.lower().replace("sig_", "signature_").replace("_", " ")
            raise InvalidResponseError(f"ocsp: error from server: {status}")
        singles = list(response.responses)
        single = next((one for one in singles if one.serial_number == certificate.serial_number), None)
        if single is None:
            raise InvalidResponseError("no response matching the supplied certificate")
        # Extensions of one response among several are not offered by the library.
        if len(singles) == 1 and any(extension.critical for extension in response.single_extensions):
            raise InvalidResponseError("unsupported critical extension")
        certificates = response.certificates
        signer = certificates[0] if certificates and certificates[0] != issuer else None
        _verify(response, issuer, signer)
        return Response(
            der,
            _status(single.certificate_status),
            _ns(single.this_update_utc),
            None if single.next_update_utc is None else _ns(single.next_update_utc),
            signer is not None,
            signer is None or _may_sign(signer),
        )
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension) as why:
        raise InvalidResponseError(str(why) or type(why).__name__) from why


def _verify(response: Any, issuer: x509.Certificate, signer: x509.Certificate | None) -> None:
    """Check the signatures; raises InvalidResponseError."""
    from cryptography.exceptions import InvalidSignature

    try:
        if signer is not None:
            signer.verify_directly_issued_by(issuer)
        key = (signer or issuer).public_key()
        _check_signature(key, response.signature, response.tbs_response_bytes, response.signature_hash_algorithm)
    except (InvalidSignature, ValueError, TypeError) as why:
        raise InvalidResponseError("bad OCSP signature: " + (str(why) or "verification failure")) from why


def _check_signature(key: object, signature: bytes, signed: bytes, algorithm: Any) -> None:
    """Check one signature; raises InvalidSignature, or ValueError for a kind of key that signs no responses."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    from cryptography.hazmat.primitives.hashes import MD5

    if isinstance(algorithm, MD5):
        raise ValueError("cannot verify signature: insecure algorithm MD5")
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, signed, padding.PKCS1v15(), algorithm)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, signed, ec.ECDSA(algorithm))
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, signed)
    else:
        raise ValueError("cannot verify signature: algorithm unimplemented")


def _may_sign(signer: x509.Certificate) -> bool:
    """Return whether an authority's delegate may sign responses (RFC 6960, 4.2.2.2)."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usages = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.OCSP_SIGNING in usages


def _status(found: object) -> Status:
    return cast(Status, str(getattr(found, "name", "unknown")).lower())


def _ns(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp()) * SECOND


def issuer_among(certificate: x509.Certificate, candidates: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Return the first certificate that has issued another."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    for candidate in candidates:
        try:
            certificate.verify_directly_issued_by(candidate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return candidate
    return None
