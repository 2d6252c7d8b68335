"""An authority with OCSP: certificates that name a responder, and the responder, which does as a test says."""

import base64
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

from natsctl.server.options import TlsOptions
from natsctl.testing.certificates import Issued, subject

Signer = Literal["authority", "delegate", "delegate without permission", "stranger", "another's delegate"]
STATUSES = {
    "good": ocsp.OCSPCertStatus.GOOD,
    "revoked": ocsp.OCSPCertStatus.REVOKED,
    "unknown": ocsp.OCSPCertStatus.UNKNOWN,
}


@dataclass
class Certified:
    """A certificate, its key and its files; the file of the certificate may have its issuers behind it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    files: Issued

    @property
    def serial(self) -> int:
        return self.certificate.serial_number

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


class Pki:
    """A root, an intermediate, and what they issue; every certificate names the responder, unless it should not."""

    def __init__(self, folder: Path, url: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url
        self.root = self.issue("root", None, authority=True, urls=())
        self.intermediate = self.issue("intermediate", self.root, authority=True)
        self.stranger = self.issue("stranger", None, authority=True, urls=())

    def issue(
        self,
        name: str,
        issuer: Certified | None = None,
        *,
        authority: bool = False,
        urls: Sequence[str] | None = None,
        must_staple: bool = False,
        usages: Sequence[x509.ObjectIdentifier] = (),
        attributes: Sequence[tuple[str, str]] = (),
    ) -> Certified:
        """Return a new certificate of an issuer, by itself where there is none."""
        key = ec.generate_private_key(ec.SECP256R1())
        named = subject(*(attributes or [("CN", name)]))
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named)
            .issuer_name(issuer.certificate.subject if issuer else named)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=5))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if not authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        responders = [self.url] if urls is None and self.url else list(urls or ())
        if responders:
            builder = builder.add_extension(_access(responders), critical=False)
        if must_staple:
            builder = builder.add_extension(x509.TLSFeature([x509.TLSFeatureType.status_request]), critical=False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(issuer.key if issuer else key, SHA256())
        files = Issued(self.folder / f"{name}.pem", self.folder / f"{name}-key.pem")
        pem = certificate.public_bytes(Encoding.PEM)
        if issuer is not None and issuer is not getattr(self, "root", None):
            pem += issuer.certificate.public_bytes(Encoding.PEM)
        files.cert.write_bytes(pem)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Certified(certificate, key, files)

    def delegate(self, issuer: Certified, *, permitted: bool) -> Certified:
        usages = [ExtendedKeyUsageOID.OCSP_SIGNING] if permitted else [ExtendedKeyUsageOID.CLIENT_AUTH]
        return self.issue(f"delegate {permitted}", issuer, urls=(), usages=usages)

    def tls(self, server: Certified, **more: Any) -> TlsOptions:
        return TlsOptions(server.files.cert, server.files.key, self.root.files.cert, **more)

    def client(self, certified: Certified | None = None, *, tls12: bool = False) -> ssl.SSLContext:
        """Return the context of a client that trusts the root, with a certificate if one is given."""
        context = ssl.create_default_context(cafile=str(self.root.files.cert))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls12:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if certified is not None:
            context.load_cert_chain(certified.files.cert, certified.files.key)
        return context


def _access(urls: Sequence[str]) -> x509.AuthorityInformationAccess:
    return x509.AuthorityInformationAccess(
        [
            x509.AccessDescription(AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier(url))
            for url in urls
        ]
    )


@dataclass
class Answers:
    statuses: dict[int, str] = field(default_factory=dict)
    """By serial number; `unknown` where there is none."""
    signer: Signer = "authority"
    this_update: timedelta = timedelta(minutes=-5)
    next_update: timedelta | None = timedelta(hours=1)
    http_status: int = 200
    body: bytes | None = None
    """Sent in place of a response."""
    hang: bool = False
    endless: bool = False
    no_post: bool = False
    moved: bool = False
    """Answer with a redirection first."""
    other_serial: bool = False
    encoding: str = ""
    """A key of ENCODINGS: the signed part is encoded in a way that Go reads and the X.509 library does not."""


Element = tuple[int, Any]
"""The identifier of an element of DER, and its content: bytes, or the elements in it."""


def _elements(der: bytes) -> list[Element]:
    """Return the elements of DER with their identifiers, nested ones in lists."""
    found: list[Element] = []
    while der:
        size, start = der[1], 2
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(der[2:start], "big")
        body, identifier = der[start : start + size], der[0]
        found.append((identifier, _elements(body) if identifier & 0x20 else body))
        der = der[start + size :]
    return found


def _der(*elements: Element) -> bytes:
    found = b""
    for identifier, content in elements:
        body = _der(*content) if isinstance(content, list) else content
        size = len(body).to_bytes(2, "big").lstrip(b"\0")
        found += bytes([identifier, *([0x80 | len(size)] if len(body) >= 0x80 else [])]) + (size or b"\0") + body
    return found


ENCODINGS: dict[str, Callable[[Any, Any], object]] = {
    "no status": lambda data, entry: entry.pop(1) if entry[1][0] == 0xA1 else None,
    "version written out": lambda data, entry: data.insert(0, (0xA0, [(0x02, b"\0")])),
    "time with an offset": lambda data, entry: entry.__setitem__(2, (0x18, b"20260101000000+0130")),
    "time with a fraction": lambda data, entry: entry.__setitem__(2, (0x18, b"20260101000000.5Z")),
    "time of the other type": lambda data, entry: entry.__setitem__(2, (0x17, b"260101000000Z")),
    "element at the end": lambda data, entry: entry.append((0x05, b"")),
}
"""What to change in a response's data and in its entry."""


def encoded(der: bytes, key: ec.EllipticCurvePrivateKey, encoding: str) -> bytes:
    """Return a response with another encoding of what it says, signed with its signer's key."""
    ((_, (status, (_, [(_, [kind, (_, basic)])]))),) = _elements(der)
    ((_, [(_, data), algorithm, _, *certificates]),) = _elements(basic)
    ENCODINGS[encoding](data, data[-1][1][0][1])
    signature = key.sign(signed := _der((0x30, data)), ec.ECDSA(SHA256()))
    basic = _der((0x30, [*_elements(signed), algorithm, (0x03, b"\0" + signature), *certificates]))
    return _der((0x30, [status, (0xA0, [(0x30, [kind, (0x04, basic)])])]))


class Responder:
    """A responder for certificates of one PKI on a port of its own; `asked` has the method and serial of requests."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.asked: list[tuple[str, int]] = []
        self.pki: Pki
        self._going = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self, "GET", base64.b64decode(unquote(self.path.partition("/")[2].rpartition("..")[2])))

            def do_POST(self) -> None:
                outer._answer(self, "POST", self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a server that has hung up

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._going.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, method: str, der: bytes) -> None:
        answers = self.answers
        if answers.moved and not handler.path.startswith("/moved"):
            handler.send_response(307)
            handler.send_header("Location", f"/moved/..{handler.path[1:]}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        request = ocsp.load_der_ocsp_request(der)
        self.asked.append((method, request.serial_number))
        if answers.hang:
            self._going.wait(60)
            return
        status = 405 if answers.no_post and method == "POST" else answers.http_status
        body = self.response(request.serial_number) if answers.body is None else answers.body
        handler.send_response(status)
        handler.send_header("Content-Type", "application/ocsp-response")
        if not answers.endless:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        while answers.endless and not self._going.is_set():
            handler.wfile.write(b"0" * 65536)

    def response(self, serial: int) -> bytes:
        answers, pki = self.answers, self.pki
        now = datetime.now(UTC).replace(microsecond=0)
        status = answers.statuses.get(serial, "unknown")
        certified = self._known[serial]
        issuer = self._issuers[serial]
        revoked = status == "revoked"
        signer, signing = self._signer(issuer)
        subject_of = certified.certificate if not answers.other_serial else pki.stranger.certificate
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=subject_of,
            issuer=issuer.certificate,
            algorithm=SHA1(),
            cert_status=STATUSES[status],
            this_update=now + answers.this_update,
            next_update=now + answers.next_update if answers.next_update is not None else None,
            revocation_time=now - timedelta(days=1) if revoked else None,
            revocation_reason=x509.ReasonFlags.key_compromise if revoked else None,
        )
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, signing.certificate)
        if signer is not None:
            builder = builder.certificates([signer.certificate])
        der = builder.sign(signing.key, SHA256()).public_bytes(Encoding.DER)
        return encoded(der, signing.key, answers.encoding) if answers.encoding else der

    def _signer(self, issuer: Certified) -> tuple[Certified | None, Certified]:
        """Return whose certificate is sent along, if any, and whose key signs."""
        match self.answers.signer:
            case "delegate" | "delegate without permission" as kind:
                found = self.pki.delegate(issuer, permitted=kind == "delegate")
                return found, found
            case "another's delegate":
                found = self.pki.delegate(self.pki.stranger, permitted=True)
                return found, found
            case "stranger":
                return None, self.pki.stranger
        return None, issuer

    _known: dict[int, Certified]
    _issuers: dict[int, Certified]

    def knows(self, certified: Certified, issuer: Certified, status: str = "good") -> Certified:
        self._known[certified.serial] = certified
        self._issuers[certified.serial] = issuer
        self.answers.statuses[certified.serial] = status
        return certified


@dataclass
class World:
    """A PKI with its responder, a server's certificate and a client's, both good."""

    responder: Responder
    pki: Pki
    server: Certified
    client: Certified

    @property
    def answers(self) -> Answers:
        return self.responder.answers

    def says(self, status: str, certified: Certified | None = None) -> None:
        """Change the status of a certificate: the client's, unless another is given."""
        self.answers.statuses[(certified or self.client).serial] = status

    def issue(self, name: str, **more: Any) -> Certified:
        """Return another certificate of the intermediate, which is good."""
        return self.responder.knows(self.pki.issue(name, self.pki.intermediate, **more), self.pki.intermediate)


@contextmanager
def world(folder: Path, **server: Any) -> Iterator[World]:
    """Yield a new world; keywords are those of the server's certificate."""
    responder = Responder()
    responder._known, responder._issuers = {}, {}
    try:
        pki = responder.pki = Pki(folder / "pki", responder.url)
        responder.knows(pki.intermediate, pki.root)
        own = pki.issue("server", pki.intermediate, **server)
        client = pki.issue("client", pki.intermediate, attributes=[("C", "DE"), ("O", "Acme"), ("CN", "client")])
        for one in (own, client):
            responder.knows(one, pki.intermediate)
        yield World(responder, pki, own, client)
    finally:
        responder.stop()
