"""The check of the other side of a connection: each certificate of its chain at the responders that it names.

A chain is valid if every certificate with a responder is good; a chain without responders is valid. The
cache is asked before a responder. Rules, texts and events are nats-server's (ocsp_peer.go); it looks at every chain
that its library finds, here there is the one that OpenSSL has verified.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote_plus

from natsctl.api.times import Clock, format_time
from natsctl.api.units import SECOND
from natsctl.server.conf.values import format_seconds
from natsctl.server.ocsp.responses import (
    InvalidResponseError,
    OcspResponse,
    ResponderError,
    Responders,
    fingerprint,
    parse_response,
    request_for,
    responders_of,
)
from natsctl.server.options import OCSP_TIMEOUT_S, OcspPeerOptions

if TYPE_CHECKING:
    from cryptography import x509

    from natsctl.server.log.lines import Log
    from natsctl.server.ocsp.service import ResponseCache
    from natsctl.server.system.account import OcspEvents

CLIENT: Final = "Client"
"""Kind of clients' connections in events and log lines."""

CLIENT_REJECTED: Final = "client not OCSP valid"
SERVER_REJECTED: Final = "server not OCSP valid"


class CertificateLink(NamedTuple):
    certificate: x509.Certificate
    issuer: x509.Certificate
    urls: list[str]

    @property
    def subject(self) -> str:
        from natsctl.server.tls.certificates import subject_text

        return subject_text(self.certificate.subject)

    @property
    def key(self) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding

        return fingerprint(self.certificate.public_bytes(Encoding.DER))


class PeerVerifier:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        cache: Callable[[], ResponseCache],
        events: Callable[[], OcspEvents],
        responders: Responders,
    ) -> None:
        """Prepare checks; `cache` and `events` return the current ones."""
        self._log = log
        self._clock = clock
        self._cache = cache
        self._events = events
        self._responders = responders

    async def verdict(
        self, chain: Sequence[bytes], options: OcspPeerOptions, kind: str, of_server: bool = False
    ) -> str:
        """Return the reason for refusing the other side, or "".

        `chain` was verified: DER, the other side's own certificate first, its root last.
        """
        from cryptography import x509

        side = "server" if of_server else "client"
        self._log.debug(f"Peer OCSP enabled: {min(len(chain), 1)} TLS {side} chain(s) will be evaluated")
        rejected = SERVER_REJECTED if of_server else CLIENT_REJECTED
        if not chain:
            self._log.error("Peer certificate is nil, rejecting OCSP peer")
            self._log.error("Peer certificate is nil, cannot send OCSP peer reject event")
            return rejected
        try:
            certificates = [x509.load_der_x509_certificate(der) for der in chain]
            if await self._is_valid(certificates, options):
                return ""
        except ValueError as why:
            self._log.error(f"Peer certificate cannot be read, rejecting OCSP peer: {why}")
            return rejected
        self._log.debug("No OCSP valid chains, thus peer is invalid")
        self._events().peer_rejected(kind, certificates[0], rejected)
        return rejected

    async def _is_valid(self, chain: list[x509.Certificate], options: OcspPeerOptions) -> bool:
        self._log.debug(f"Chain [0]: {len(chain)} total link(s)")
        if len(chain) == 1:
            self._log.debug("Chain [0] is self-signed, thus peer is valid")
            return True
        pairs = itertools.pairwise(chain)
        links = [CertificateLink(own, issuer, urls) for own, issuer in pairs if (urls := responders_of(own))]
        if not links:
            self._log.debug("Chain [0] has no OCSP eligible links, thus peer is valid")
            return True
        self._log.debug(f"Chain [0] has {len(links)} OCSP eligible link(s)")
        for link in links:
            if reason := await self._link_fault(link, options):
                self._log.debug(reason)
                self._events().link_invalid(chain[0], link.certificate, reason)
                return False
        self._log.debug("Chain [0] is OCSP valid for all eligible links, thus peer is valid")
        return True

    async def _link_fault(self, link: CertificateLink, options: OcspPeerOptions) -> str:
        """Return why a certificate is not good, or "" if it is good or treated as good."""
        subject, key = link.subject, link.key
        self._log.debug(f"Checking OCSP peer cache for [{subject}], key [{key}]")
        response, revoked_once = self._cached(link, key, subject, options)
        if response is None:
            try:
                der = await self._fetched(link, options)
            except ResponderError as why:
                self._log.warn(f"Attempt to obtain OCSP response from CA responder for [{subject}] failed: {why}")
                return self._unreachable(subject, options, revoked_once)
            response, fault = self._judged(der, link, subject, options)
            if response is None:
                return "" if self._passes(subject, options) else fault
            self._cache().put(key, response, subject)
        if response.status == "revoked" or (response.status == "unknown" and not options.unknown_is_good):
            self._log.warn(f"OCSP verify fail for [{subject}] with CA status [{response.status}]")
            return "" if self._passes(subject, options) else f"Invalid OCSP response status: {response.status}"
        self._log.debug(f"OCSP verify pass for [{subject}]")
        return ""

    def _passes(self, subject: str, options: OcspPeerOptions) -> bool:
        if options.warn_only:
            self._log.warn(f"OCSP verify fail for [{subject}] but WarnOnly is true so allowing")
        return options.warn_only

    def _unreachable(self, subject: str, options: OcspPeerOptions, revoked_once: bool) -> str:
        if self._passes(subject, options):
            return ""
        if options.allow_when_unreachable:
            why = "cached revocation exists so rejecting" if revoked_once else "no cached revocation so allowing"
            about = f"Failed to obtain OCSP CA response for [{subject}] but AllowWhenCAUnreachable set"
            self._log.warn(f"{about}; {why}")
            if not revoked_once:
                return ""
        return "Failed OCSP response fetch"

    def _cached(
        self, link: CertificateLink, key: str, subject: str, options: OcspPeerOptions
    ) -> tuple[OcspResponse | None, bool]:
        """Return a current response from the cache, and whether the cache has a revocation."""
        cache = self._cache()
        der = cache.get(key)
        if der is None:
            return None, False
        revoked = cache.is_revoked(key)
        try:
            response = parse_response(der, link.certificate, link.issuer)
        except InvalidResponseError:
            response = None
        if response is None or not response.authorised:
            self._log.debug(f"Invalid cached OCSP response for [{subject}] with fingerprint [{key}]")
            cache.delete(key)
            return None, revoked
        revoked = revoked or response.status == "revoked"
        if self.is_current(response, options):
            self._log.debug(f"Cached OCSP response is current, status [{response.status}]")
            return response, revoked
        self._log.debug(f"Cached OCSP response is expired, status [{response.status}]")
        cache.delete(key)
        return None, revoked

    def _judged(
        self, der: bytes, link: CertificateLink, subject: str, options: OcspPeerOptions
    ) -> tuple[OcspResponse | None, str]:
        """Return a responder's response, or None and the reason for ignoring it."""
        try:
            response = parse_response(der, link.certificate, link.issuer)
        except InvalidResponseError as why:
            self._log.error(f"Could not parse OCSP CA response for [{subject}]: {why}")
            return None, "Failed OCSP response parse"
        if not response.authorised:
            text = f"Invalid OCSP response delegation: {subject}"
            self._log.warn(text)
            return None, text
        if not self.is_current(response, options):
            self._log.warn(f"New OCSP CA response obtained for [{subject}] but not current")
            return None, "OCSP response not in effectivity window"
        return response, ""

    async def _fetched(self, link: CertificateLink, options: OcspPeerOptions) -> bytes:
        """Return the answer of the first responder that has one; raises ResponderError."""
        encoded = quote_plus(base64.b64encode(request_for(link.certificate, link.issuer)))
        fault = ResponderError("no available OCSP servers")

        def accepted(status: int) -> str:
            return "" if status == 200 else f"bad OCSP responder http status: [{status}]"

        for url in link.urls:
            self._log.debug(f"Trying OCSP responder url [{url}]")
            whole = f"{url.removesuffix('/')}/{encoded}"
            try:
                der = await self._responders.ask("GET", whole, b"", options.timeout_s or OCSP_TIMEOUT_S, accepted)
            except ResponderError as why:
                fault = ResponderError(f"exhausted OCSP responders: {why}")
                continue
            if not der:
                raise ResponderError("%!s(<nil>)")  # nats-server's text for an empty answer
            return der
        raise fault

    def is_current(self, response: OcspResponse, options: OcspPeerOptions) -> bool:
        now_ns, skew_ns = self._clock.now_ns(), round(options.clock_skew_s * SECOND)
        now, skew = format_time(now_ns), format_seconds(options.clock_skew_s)
        about = f"is before now [{now}] with clockskew [{skew}]"
        if response.next_update_ns is None:
            end_ns = response.this_update_ns + round(options.ttl_s * SECOND)
            text = f"OCSP response cache expiry [{format_time(end_ns)}] {about}"
        else:
            end_ns, text = response.next_update_ns, f"OCSP response NextUpdate [{response.next_update}] {about}"
        if end_ns < now_ns - skew_ns:
            self._log.debug(text)
            return False
        if response.this_update_ns > now_ns + skew_ns:
            self._log.debug(f"OCSP response ThisUpdate [{format_time(response.this_update_ns)}] {about}")
            return False
        return True


def certificate_facts(certificate: x509.Certificate) -> dict[str, Any]:
    from cryptography.hazmat.primitives.serialization import Encoding

    from natsctl.server.tls.certificates import subject_text

    der = certificate.public_bytes(Encoding.DER)
    return {
        "subject": subject_text(certificate.subject),
        "issuer": subject_text(certificate.issuer),
        "fingerprint": fingerprint(der),
        "raw": base64.b64encode(der).decode(),
    }
