"""OCSP responses: requests for them, their signatures and their validity.

A response is accepted if the certificate's authority has signed it, or a responder with an included certificate that
that authority has signed for this use. Rules and texts are nats-server's and its library's; where
a response has several certificates, only the first counts.

Responses are read as Go's encoding/asn1 reads them. It accepts more than the X.509 library does: extra elements at
the end of a sequence, default values that are written out, times with an offset or in the other type. A signed
response must not have another status here than in nats-server, so that no encoding of "revoked" counts as a response
that failed to arrive. Source: nats-server, ocsp.go and certidp/ocsp_responder.go.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from natsctl.api.times import ZERO_TIME, format_time
from natsctl.api.units import SECOND
from natsctl.server.http_client import HttpError, request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography import x509

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_ID: Final = 0x06
ENUMERATED: Final = 0x0A
BOOLEAN: Final = 0x01
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
TIMES: Final = (GENERALIZED_TIME, UTC_TIME)

_ZONE: Final = r"(Z|[+-](?!0000)(?:[01]\d|2[0-4])[0-5]\d)"
_GENERALIZED: Final = re.compile(rb"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d{0,8}[1-9]))?" + _ZONE.encode())
_UTC: Final = re.compile(rb"(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)?()" + _ZONE.encode())
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""


class DerReader:
    """The elements of a piece of DER, in order; everything raises ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    @property
    def identifier(self) -> int:
        return -1 if self.is_at_end else self._data[self._at]

    def has(self, identifier: int) -> bool:
        return self.identifier == identifier

    def content(self, *identifiers: int) -> bytes:
        """Return the content of the next element; without identifiers any is accepted."""
        if identifiers and self.identifier not in identifiers:
            raise ValueError(f"asn1: an element of type {identifiers[0]:#x} is missing")
        size = self._header()
        end = self._at + size
        if end > len(self._data):
            raise ValueError("asn1: syntax error: data truncated")
        content, self._at = self._data[self._at : end], end
        return content

    def whole(self) -> bytes:
        start = self._at
        self.content()
        return self._data[start : self._at]

    def nested(self, *identifiers: int) -> DerReader:
        return DerReader(self.content(*identifiers))

    def enter(self, explicit: int, *identifiers: int) -> bool:
        """Go into an optional explicit tag, if it is there with one of the elements; like Go, ignore its length."""
        start = self._at
        if not self.has(explicit):
            return False
        if not self._header() or self.is_at_end:
            raise ValueError("asn1: structure error: explicit tag has no child")
        if self.identifier in identifiers:
            return True
        self._at = start
        return False

    def integer(self, identifier: int = INTEGER) -> int:
        return int.from_bytes(self.content(identifier), "big", signed=True)

    def time_ns(self) -> int:
        is_utc = self.has(UTC_TIME)
        return time_ns(self.content(*TIMES), is_utc=is_utc)

    def _header(self) -> int:
        data, at = self._data, self._at
        if len(data) < at + 2 or data[at] & 0x1F == 0x1F:
            raise ValueError("asn1: syntax error: truncated tag or length")
        size, at = data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            if not count or len(data) < at + count or data[at] == 0 or size < 0x80:
                raise ValueError("asn1: structure error: non-minimal length")
            at += count
        self._at = at
        return size


def time_ns(text: bytes, *, is_utc: bool) -> int:
    """Return a UTCTime or a GeneralizedTime since 1970; raises ValueError."""
    match = (_UTC if is_utc else _GENERALIZED).fullmatch(text)
    if match is None:
        raise ValueError(f"asn1: {text!r} is not a time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if is_utc:
        year += 1900 if year >= 50 else 2000
    sign, zone = (-1 if match[8][:1] == b"-" else 1), match[8][1:] or b"0000"
    offset_s = sign * (int(zone[:2]) * 3600 + int(zone[2:]) * 60)
    cycles, year_of_cycle = divmod(year, _CYCLE_YEARS)  # datetime has no year 0
    moment = datetime(2000 + year_of_cycle, month, day, hour, minute, second, tzinfo=UTC)
    days = (cycles - 2000 // _CYCLE_YEARS) * _CYCLE_DAYS
    return (int(moment.timestamp()) + days * 86_400 - offset_s) * SECOND + int((match[7] or b"").ljust(9, b"0"))


MAX_RESPONSE_BYTES: Final = 64 * 1024
"""Longest response that is read; one with a responder's certificate has 2 to 4 KiB."""

MAX_RESPONDERS: Final = 8

STATUS_REQUEST_OID: Final = bytes.fromhex("06082b06010505070118")
"""DER of the extension of a certificate that requires a staple: id-pe-tlsfeature, RFC 7633."""

BASIC_RESPONSE_ID: Final = bytes.fromhex("2b0601050507300101")
"""The only type of response that is read: id-pkix-ocsp-basic, RFC 6960."""

GOOD: Final = 0x80
REVOKED: Final = 0xA1
UNKNOWN: Final = 0x82
EXPLICIT_0: Final = 0xA0
EXPLICIT_1: Final = 0xA1
NO_TIME_NS: Final = -62_135_596_800 * SECOND
"""The first moment of year 1: no time for Go."""

_ERRORS: Final = {1: "malformed", 2: "internal error", 3: "try later", 5: "signature required", 6: "unauthorized"}

_SIGNATURES: Final = {
    bytes.fromhex("2a864886f70d010105"): ("RSA", "SHA1"),
    bytes.fromhex("2a864886f70d01010b"): ("RSA", "SHA256"),
    bytes.fromhex("2a864886f70d01010c"): ("RSA", "SHA384"),
    bytes.fromhex("2a864886f70d01010d"): ("RSA", "SHA512"),
    bytes.fromhex("2a8648ce3d0401"): ("ECDSA", "SHA1"),
    bytes.fromhex("2a8648ce3d040302"): ("ECDSA", "SHA256"),
    bytes.fromhex("2a8648ce3d040303"): ("ECDSA", "SHA384"),
    bytes.fromhex("2a8648ce3d040304"): ("ECDSA", "SHA512"),
    bytes.fromhex("2b6570"): ("Ed25519", ""),
}
"""Kind of key and hash by the identifier of an algorithm."""

_ISSUER_HASHES: Final = frozenset(
    map(bytes.fromhex, ("2b0e03021a", "608648016503040201", "608648016503040202", "608648016503040203"))
)
"""SHA-1, SHA-256, SHA-384 and SHA-512."""

Status = Literal["good", "revoked", "unknown"]


class InvalidResponseError(ValueError):
    """Bytes that are no response about the certificate, or one that nobody who may has signed."""


class InvalidCertificateError(ValueError):
    """A certificate with extensions that cannot be read."""


class OcspResponse(NamedTuple):
    """One verified response about one certificate; its dates are not checked yet."""

    der: bytes
    status: Status
    this_update_ns: int
    next_update_ns: int | None
    authorised: bool
    """The signer is the authority, or has its permission to sign responses."""

    @property
    def next_update(self) -> str:
        return ZERO_TIME if self.next_update_ns is None else format_time(self.next_update_ns)


def fingerprint(der: bytes) -> str:
    """Return the name of a certificate in the cache and in events."""
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def demands_staple(der: bytes) -> bool:
    if STATUS_REQUEST_OID not in der:
        return False
    from cryptography import x509

    try:
        features = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.TLSFeature).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return x509.TLSFeatureType.status_request in features


def responders_of(certificate: x509.Certificate) -> list[str]:
    """Return the web URLs for requests about a certificate's status.

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
    """Return the DER of a request; SHA-1 only names the issuer here, and responders expect it."""
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.ocsp import OCSPRequestBuilder

    builder = OCSPRequestBuilder().add_certificate(certificate, issuer, SHA1())  # nosec B303 # RFC 5019 asks for it
    request = builder.build()
    return request.public_bytes(Encoding.DER)


def parse_response(der: bytes, certificate: x509.Certificate, issuer: x509.Certificate) -> OcspResponse:
    """Return the response about a certificate that `issuer` has issued; raises InvalidResponseError."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        signed, algorithm, signature, signer_der = _signed_parts(der)
        status, this_update_ns, next_update_ns = _single_about(certificate.serial_number, signed)
        signer = None if signer_der is None else x509.load_der_x509_certificate(signer_der)
        if signer == issuer:
            signer = None
        _verify(signed, algorithm, signature, issuer, signer)
        authorised = signer is None or _may_sign(signer)
        return OcspResponse(der, status, this_update_ns, next_update_ns, authorised)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension) as why:
        raise InvalidResponseError(str(why) or type(why).__name__) from why


def _signed_parts(der: bytes) -> tuple[bytes, bytes, bytes, bytes | None]:
    """Return the signed bytes, the algorithm, the signature and the first certificate; raises ValueError."""
    reader = DerReader(der)
    whole = reader.nested(SEQUENCE)
    if not reader.is_at_end:
        raise ValueError("trailing data in OCSP response")
    if status := whole.integer(ENUMERATED):
        raise ValueError(f"ocsp: error from server: {_ERRORS.get(status, f'unknown OCSP status: {status}')}")
    if not whole.enter(EXPLICIT_0, SEQUENCE):
        raise ValueError("bad OCSP response type")
    typed = whole.nested(SEQUENCE)
    if typed.content(OBJECT_ID) != BASIC_RESPONSE_ID:
        raise ValueError("bad OCSP response type")
    reader = DerReader(typed.content(OCTET_STRING))
    basic = reader.nested(SEQUENCE)
    if not reader.is_at_end:
        raise ValueError("trailing data in OCSP response")
    signed = basic.whole()
    algorithm = basic.nested(SEQUENCE).content(OBJECT_ID)
    bits = basic.content(BIT_STRING)
    certificates = basic.nested(SEQUENCE) if basic.enter(EXPLICIT_0, SEQUENCE) else None
    first = None if certificates is None or certificates.is_at_end else certificates.whole()
    return signed, algorithm, bits[1:], first


def _single_about(serial: int, signed: bytes) -> tuple[Status, int, int | None]:
    """Return status and validity of the first entry about a serial number; raises ValueError."""
    data = DerReader(signed).nested(SEQUENCE)
    if data.enter(EXPLICIT_0, INTEGER):
        data.integer()  # version
    _check_responder(data)
    data.time_ns()  # when the response was produced
    entries, found = data.nested(SEQUENCE), None
    while not entries.is_at_end:
        entry = entries.nested(SEQUENCE)
        about = entry.nested(SEQUENCE)
        known_hash = about.nested(SEQUENCE).content(OBJECT_ID) in _ISSUER_HASHES
        about.content(OCTET_STRING)
        about.content(OCTET_STRING)
        own_serial = about.integer()
        status, this_update_ns, next_update_ns, critical = _entry_status(entry)
        if found is not None or own_serial != serial:
            continue  # read still: an entry that cannot be read makes the whole response unreadable
        found = status, this_update_ns, next_update_ns
        if critical:
            fault = "unsupported critical extension"
        elif not known_hash:
            fault = "unsupported issuer hash algorithm"
        else:
            fault = ""
    if found is None:
        raise ValueError("no response matching the supplied certificate")
    if fault:
        raise ValueError(fault)
    return found


def _check_responder(data: DerReader) -> None:
    """Read who has signed, by name or by key; raises ValueError."""
    kind = data.identifier & 0x1F
    responder = data.nested()
    if kind not in (1, 2):
        raise ValueError("invalid responder id tag")
    responder.content(SEQUENCE if kind == 1 else OCTET_STRING)
    if not responder.is_at_end:
        raise ValueError("invalid responder id")


def _entry_status(entry: DerReader) -> tuple[Status, int, int | None, bool]:
    """Return an entry's status, its validity and whether an extension is critical; raises ValueError.

    Any status other than good or unknown counts as revoked, as in nats-server's library.
    """
    is_good = entry.has(GOOD) and entry.content() is not None
    if entry.has(REVOKED):
        revocation = entry.nested()
        revocation.time_ns()
        if revocation.enter(EXPLICIT_0, ENUMERATED):
            revocation.integer(ENUMERATED)
    is_unknown = entry.has(UNKNOWN) and entry.content() is not None
    status: Status = "good" if is_good else "unknown" if is_unknown else "revoked"
    this_update_ns = entry.time_ns()
    next_update_ns = entry.time_ns() if entry.enter(EXPLICIT_0, *TIMES) else None
    critical = False
    extensions = entry.nested(SEQUENCE) if entry.enter(EXPLICIT_1, SEQUENCE) else DerReader(b"")
    while not extensions.is_at_end:
        extension = extensions.nested(SEQUENCE)
        extension.content(OBJECT_ID)
        critical |= extension.has(BOOLEAN) and extension.content() != b"\0"
        extension.content(OCTET_STRING)
    return status, this_update_ns, None if next_update_ns == NO_TIME_NS else next_update_ns, critical


def _verify(
    signed: bytes, algorithm: bytes, signature: bytes, issuer: x509.Certificate, signer: x509.Certificate | None
) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        if signer is not None:
            signer.verify_directly_issued_by(issuer)
        _check_signature((signer or issuer).public_key(), algorithm, signature, signed)
    except (InvalidSignature, ValueError, TypeError) as why:
        raise InvalidResponseError("bad OCSP signature: " + (str(why) or "verification failure")) from why


def _check_signature(key: object, algorithm: bytes, signature: bytes, signed: bytes) -> None:
    """Check one signature; raises InvalidSignature, or ValueError for a kind of key that signs no responses."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    kind, digest = _SIGNATURES.get(algorithm, ("", ""))
    if kind == "RSA" and isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, signed, padding.PKCS1v15(), getattr(hashes, digest)())
    elif kind == "ECDSA" and isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, signed, ec.ECDSA(getattr(hashes, digest)()))
    elif kind == "Ed25519" and isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, signed)
    else:
        raise ValueError("cannot verify signature: algorithm unimplemented")


def _may_sign(signer: x509.Certificate) -> bool:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usages = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.OCSP_SIGNING in usages


def issuer_among(certificate: x509.Certificate, candidates: Iterable[x509.Certificate]) -> x509.Certificate | None:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    for candidate in candidates:
        try:
            certificate.verify_directly_issued_by(candidate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return candidate
    return None


MAX_REQUESTS: Final = 64
"""Requests at the same time, of all connections; more of them wait, within their time limits."""

_HEADERS: Final = (("Content-Type", "application/ocsp-request"), ("Accept", "application/ocsp-response"))


class ResponderError(HttpError):
    """A responder that gave no answer; the text says why."""


class Responders:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_REQUESTS)

    async def ask(self, method: str, url: str, body: bytes, timeout_s: float, accepted: Callable[[int], str]) -> bytes:
        """Return the body of the answer; raises ResponderError, with the text of `accepted` for a status."""
        what = f'{method.title()} "{url}"'
        try:
            async with asyncio.timeout(timeout_s), self._places:
                answer = await request(
                    method, url, body, timeout_s=timeout_s, max_bytes=MAX_RESPONSE_BYTES, headers=_HEADERS
                )
        except TimeoutError:
            raise ResponderError(f"{what}: context deadline exceeded (Client.Timeout exceeded)") from None
        except HttpError as why:
            raise ResponderError(f"{what}: {why}") from why
        if refusal := accepted(answer.status):
            raise ResponderError(refusal)
        return answer.body
