"""Staples: OCSP responses about this server's own certificates, renewed and kept in the store's folder.

A staple is taken from memory, else from the file of an earlier run, else from a responder, as long as it is in force.
After that it is renewed at half of its remaining validity, at least every 24 hours; if a responder fails, the
old one serves until it ends. A certificate that is found revoked ends the server in the modes `always` and `must`; in
other modes its last response is still stapled, and clients decide. Source: nats-server, ocsp.go.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.api.times import Clock, format_time
from natsctl.api.units import SECOND
from natsctl.server.conf.values import format_seconds
from natsctl.server.files import read_file, replace_file
from natsctl.server.ocsp.responses import (
    MAX_RESPONSE_BYTES,
    STATUS_REQUEST_OID,
    InvalidCertificateError,
    InvalidResponseError,
    OcspResponse,
    ResponderError,
    Responders,
    demands_staple,
    issuer_among,
    parse_response,
    request_for,
    responders_of,
)

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from natsctl.server.log.lines import Log
    from natsctl.server.options import OcspOptions

FOLDER: Final = "ocsp"
FOLDER_MODE: Final = 0o750
REQUEST_S: Final = 30.0
"""Time limit of one request. Source: nats-server, NewOCSPMonitor."""
USUAL_INTERVAL_S: Final = 24 * 3600.0
"""Time until a response without an end is renewed."""
MIN_INTERVAL_S: Final = 120.0
"""Time until the next attempt where the validity of a response has ended."""

_FIRST: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class StapleError(OSError):
    """A certificate that cannot be stapled; the text says why."""

    def __str__(self) -> str:
        return str(self.args[0])


class StapleSources(NamedTuple):
    log: Log
    clock: Clock
    responders: Responders
    folder: Path | None
    """The folder of the store; if None, staples are only kept in memory."""
    urls: tuple[str, ...]
    """Responders that replace the certificates' ones."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Staple:
    def __init__(
        self, sources: StapleSources, kind: str, file: str, certificate: x509.Certificate, issuer: x509.Certificate,
        *, ends_server: bool,
    ) -> None:  # fmt: skip
        """Prepare; `kind` and `file` name the certificate in log lines."""
        from cryptography.hazmat.primitives.serialization import Encoding

        self._sources = sources
        self._kind = kind
        self._file = file
        self._certificate = certificate
        self._issuer = issuer
        self._ends_server = ends_server
        self._response: OcspResponse | None = None
        self._asking: asyncio.Task[OcspResponse] | None = None
        self.key = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
        """The name of its file."""

    @property
    def in_force(self) -> bytes | None:
        """The response to staple now; None if it must be fetched first."""
        response = self._known()
        return response.der if response is not None else None

    def _known(self) -> OcspResponse | None:
        if self._response is not None and not self._fault(self._response):
            return self._response
        if self._sources.folder is None:
            return None
        try:
            self._response = self._parsed(read_file(self._path, MAX_RESPONSE_BYTES))
        except (OSError, InvalidResponseError):
            return None
        return self._response

    @property
    def _path(self) -> Path:
        assert self._sources.folder is not None
        return self._sources.folder / FOLDER / self.key

    def _parsed(self, der: bytes) -> OcspResponse:
        """Return a response that is about this certificate and in force; raises InvalidResponseError."""
        response = parse_response(der, self._certificate, self._issuer)
        if not response.authorised:
            raise InvalidResponseError("OCSP response signer missing authorization by CA to act as OCSP signer")
        if fault := self._fault(response):
            raise InvalidResponseError(fault)
        return response

    def _fault(self, response: OcspResponse) -> str:
        now_ns = self._sources.clock.now_ns()
        if response.next_update_ns is not None and response.next_update_ns < now_ns:
            return f"invalid ocsp NextUpdate, is past time: {response.next_update}"
        if response.this_update_ns > now_ns:
            return f"invalid ocsp ThisUpdate, is future time: {format_time(response.this_update_ns)}"
        return ""

    async def found(self) -> OcspResponse:
        """Return the response that is known, else the responder's; raises StapleError."""
        return self._known() or await self.fetched()

    async def fetched(self) -> OcspResponse:
        """Return a responder's response; calls meanwhile share one request. Raises StapleError."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._fetch())
            self._asking.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # nobody may wait any more
        return await asyncio.shield(self._asking)

    async def _fetch(self) -> OcspResponse:
        try:
            urls = self._sources.urls or tuple(responders_of(self._certificate))
        except InvalidCertificateError as why:
            raise StapleError(f"error parsing certificate: {why}") from why
        if not urls:
            raise StapleError("no available ocsp servers")
        request = request_for(self._certificate, self._issuer)
        fault = ""
        for url in (url.removesuffix("/") for url in urls):
            try:
                response = self._parsed(await self._asked(url, request))
            except ResponderError as why:
                fault = str(why)
            except InvalidResponseError as why:
                fault = f"failed to get remote status from {url}: {why}"
            else:
                self._keep(response)
                return response
        raise StapleError(f"exhausted ocsp servers: {fault}")

    async def _asked(self, url: str, request: bytes) -> bytes:
        """Return the answer to POST, else to GET; raises ResponderError."""
        encoded = base64.b64encode(request).decode()

        def refusal(method: str, size: int) -> Callable[[int], str]:
            about = f"non-ok http status on {method} request (reqlen={size})"
            return lambda status: f"{about}: {status}" if status > 299 else ""

        ask = self._sources.responders.ask
        try:
            return await ask("POST", url, request, REQUEST_S, refusal("POST", len(request)))
        except ResponderError as first:
            try:
                return await ask("GET", f"{url}/{encoded}", b"", REQUEST_S, refusal("GET", len(encoded)))
            except ResponderError as second:
                raise ResponderError(f"{first}\n{second}") from second

    def _keep(self, response: OcspResponse) -> None:
        """Keep a response in memory and in the store's folder; raises StapleError if that is not writable."""
        if self._sources.folder is not None:
            try:
                replace_file(self._path, response.der)
            except OSError as why:
                raise StapleError(f"failed to write ocsp status: {why}") from why
        self._response = response

    async def check(self) -> None:
        """Find the first response before the server serves; raises StapleError, also for a certificate not good."""
        try:
            response = await self.found()
        except StapleError as why:
            raise StapleError(f"bad OCSP status update for certificate at '{self._file}': {why}") from why
        if response.status != "good" and self._ends_server:
            raise StapleError(f"found existing OCSP status for certificate at '{self._file}': {response.status}")

    def inherit(self, before: Staple | None) -> None:
        if before is not None:
            self._response = before._response

    # The schedule

    def next_run_s(self) -> float:
        response = self._response
        if response is None:
            return MIN_INTERVAL_S
        if response.next_update_ns is None:
            return USUAL_INTERVAL_S
        left_ns = response.next_update_ns - self._sources.clock.now_ns()
        return left_ns / 2 / SECOND if left_ns >= 0 else MIN_INTERVAL_S

    async def keep_renewed(self) -> bool:
        """Renew the response repeatedly; return at a bad certificate, True if that ends the server."""
        log, wait_s = self._sources.log, 0.0
        response = self._known()
        if response is not None and response.status == "good":
            wait_s = self.next_run_s()
            log.info(self._line(f"Found OCSP status for {self._kind} certificate at", response, wait_s))
        elif response is not None and self._ends_server:
            log.error(f"Found OCSP status for {self._kind} certificate at '{self._file}': {response.status}")
            return True
        while True:
            await self._sources.sleep(wait_s)
            try:
                response = await self.fetched()
            except StapleError as why:
                wait_s = self.next_run_s()
                about = f"Bad OCSP status update for certificate '{self._file}': {why}"
                log.error(f"{about}, trying again in {format_seconds(wait_s)}")
                continue
            if response.status != "good":
                log.error(f"Received OCSP status for {self._kind} certificate '{self._file}': {response.status}")
                return self._ends_server
            wait_s = self.next_run_s()
            log.info(self._line(f"Received OCSP status for {self._kind} certificate", response, wait_s))

    def _line(self, what: str, response: OcspResponse, wait_s: float) -> str:
        wait = format_seconds(wait_s)
        return f"{what} '{self._file}': good, next update {response.next_update}, checking again in {wait}"


def prepare_folder(folder: Path | None) -> None:
    if folder is None:
        return
    place = folder / FOLDER
    try:
        place.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    except FileExistsError as why:
        raise StapleError("OCSP storage directory is not a directory") from why
    except OSError as why:
        raise StapleError(f"could not create OCSP storage directory - {why}") from why


def staple_of(
    sources: StapleSources, options: OcspOptions | None, kind: str, file: Path, authorities: Path | None
) -> Staple | None:
    mode = options.mode if options is not None else ""
    try:
        content = read_file(file)
        if mode != "always" and not _may_demand(content):
            return None
        from cryptography import x509  # slow to import, and most certificates get no staple

        bundle = x509.load_pem_x509_certificates(content)
    except (OSError, ValueError) as why:
        raise StapleError(f"error parsing certificate: {why}") from why
    demanded = demands_staple(bundle[0].public_bytes(_der()))
    if mode == "never":
        if demanded:
            sources.log.warn(f"Certificate at '{file}' has MustStaple but OCSP is disabled")
        return None
    if not demanded and mode != "always":
        return None
    prepare_folder(sources.folder)
    issuer = issuer_of(bundle, authorities)
    ends = mode == "always" or (mode == "must" and demanded)
    return Staple(sources, kind, str(file), bundle[0], issuer, ends_server=ends)


def _may_demand(content: bytes) -> bool:
    """Return whether the first certificate of a file may have the extension "must staple"."""
    match = _FIRST.search(content)
    return match is None or STATUS_REQUEST_OID in ssl.PEM_cert_to_DER_cert(match[0].decode("ascii", "replace"))


def _der() -> Encoding:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


def issuer_of(bundle: list[x509.Certificate], authorities: Path | None) -> x509.Certificate:
    """Return the issuer of the first certificate: the second of its file, else one of the authorities.

    Raises StapleError.
    """
    from cryptography import x509

    if len(bundle) > 1:
        issuer = issuer_among(bundle[0], bundle[1:2])
    elif authorities is not None:
        try:
            issuer = issuer_among(bundle[0], x509.load_pem_x509_certificates(read_file(authorities)))
        except (OSError, ValueError) as why:
            raise StapleError(f"failed to parse ca_file: {why}") from why
    else:
        issuer = issuer_among(bundle[0], _system_authorities())
    if issuer is None:
        raise StapleError("no issuers found")
    from natsctl.server.tls.certificates import shown_subject

    try:
        is_authority = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_authority = False
    if not is_authority:
        raise StapleError(f"{shown_subject(issuer.subject)} invalid ca basic constraints: is not ca")
    return issuer


def _system_authorities() -> list[x509.Certificate]:
    import warnings

    from cryptography import x509

    system_authorities = []
    for der in ssl.create_default_context().get_ca_certs(binary_form=True):
        # An old authority with an unreadable certificate has issued no current certificate.
        with warnings.catch_warnings(), suppress(ValueError):
            warnings.simplefilter("ignore")
            system_authorities.append(x509.load_der_x509_certificate(der))
    return system_authorities
