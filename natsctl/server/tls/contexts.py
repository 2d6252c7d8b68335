"""TLS of connections: the contexts of a listener, and a layer between a transport and the protocol on it.

Contexts are made from the listener's files; a reload replaces them. New connections use the latest ones,
while existing ones keep theirs. Suites and errors have nats-server's names. The layer does one step for each chunk.

asyncio's own start_tls takes a transport, but no bytes that were read from it before, and waits in a task of its own.
Here the first bytes decide whether a connection uses TLS, INFO may be sent in clear before it, and a handshake may
never begin; hence this layer. It is the same pair of memory buffers around OpenSSL that asyncio uses.

Where clients' certificates are verified, no session may be resumed: OpenSSL would then check neither the certificate's
dates nor the authorities again. Python can turn off resumption only in TLS 1.3, so there is a `spare` context with
keys and a cache of its own. A ClientHello that would resume a session of the first context is passed to the spare,
which does not know the session and makes a full handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from natsctl.broker.auth.credentials import TlsFacts
from natsctl.server.files import read_file
from natsctl.server.options import TlsOptions

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.server.ocsp.stapling import StapledLayer


SUITES: Final = {
    "TLS_AES_128_GCM_SHA256": "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384": "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256": "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""Secure suites: the name in `cipher_suites` and connz, and OpenSSL's; the first three are TLS 1.3's."""

INSECURE_SUITES: Final = {
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
}
"""Suites that need `allow_insecure_cipher_suites`; some builds of OpenSSL lack some of them."""

TLS13_SUITES: Final = frozenset(list(SUITES)[:3])

CURVES: Final = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
    "X25519MLKEM768": "X25519MLKEM768",
    "SecP256r1MLKEM768": "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024": "SecP384r1MLKEM1024",
}
"""Names in `curve_preferences`, and OpenSSL's."""

_IANA: Final = {name: iana for iana, name in (SUITES | INSECURE_SUITES).items()}

_NOT_TLS: Final = "tls: first record does not look like a TLS handshake"

_REASONS: Final = {
    "HTTP_REQUEST": _NOT_TLS,
    "HTTPS_PROXY_REQUEST": _NOT_TLS,
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls: client didn't provide a certificate",
    "NO_SHARED_CIPHER": "tls: no cipher suite supported by both client and server",
    "UNSUPPORTED_PROTOCOL": "tls: client offered only unsupported versions",
    "TLSV1_ALERT_PROTOCOL_VERSION": "remote error: tls: protocol version not supported",
    "TLSV1_ALERT_UNKNOWN_CA": "remote error: tls: unknown certificate authority",
    "SSLV3_ALERT_BAD_CERTIFICATE": "remote error: tls: bad certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "remote error: tls: expired certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "remote error: tls: unknown certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "remote error: tls: handshake failure",
    "CERTIFICATE_VERIFY_FAILED": "tls: failed to verify certificate: x509: ",
}
"""Log texts for OpenSSL's reasons."""

_VERIFY: Final = {
    10: "certificate has expired or is not yet valid",
    9: "certificate has expired or is not yet valid",
    26: "certificate specifies an incompatible key usage",
}
"""Log texts for OpenSSL's verify codes; any other code is logged as an unknown authority."""


def suite_name(openssl: str) -> str:
    """Return the IANA name of a suite, given OpenSSL's; an unknown name is returned unchanged."""
    return _IANA.get(openssl, openssl)


def error_text(error: ssl.SSLError) -> str:
    """Return nats-server's log text for a failed handshake, else OpenSSL's."""
    text = _REASONS.get(error.reason or "", "")
    if isinstance(error, ssl.SSLCertVerificationError):
        return text + _VERIFY.get(error.verify_code, "certificate signed by unknown authority")
    return text or f"tls: {(error.reason or str(error)).lower().replace('_', ' ')}"


def is_probe(error: ssl.SSLError) -> bool:
    """Return whether the other side did not attempt TLS at all: a load balancer's check, or a browser without it."""
    return _REASONS.get(error.reason or "") == _NOT_TLS


READ_BYTES: Final = 64 * 1024
"""Limit of the plaintext that one call reads from OpenSSL."""

INTERNAL_ERROR: Final = bytes.fromhex("15030300020250")
BAD_CERTIFICATE: Final = bytes.fromhex("1503030002022a")
"""Alerts of a server that has not begun to encrypt."""


class TlsLayer:
    __slots__ = ("_hello", "_incoming", "_outgoing", "_spare", "connection", "done", "ended")

    def __init__(
        self, context: ssl.SSLContext, hostname: str | None = None, spare: ssl.SSLContext | None = None
    ) -> None:
        """Prepare the server's side; with `hostname`, the client's side (its first `feed` is empty).

        With `spare`, a context like the first, no session is resumed.
        """
        self._begin(context, hostname)
        self._spare = spare
        self._hello: bytes | None = b"" if spare is not None else None
        """The ClientHello, until it is answered; OpenSSL limits its length."""
        self.done = False
        self.ended = False
        """The other side has sent its closing alert."""

    def _begin(self, context: ssl.SSLContext, hostname: str | None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.connection = context.wrap_bio(self._incoming, self._outgoing, hostname is None, hostname)

    def feed(self, data: bytes) -> bytes:
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self.done:
                self._continue_handshake(data)
            while part := self.connection.read(READ_BYTES):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(parts)

    def _continue_handshake(self, data: bytes) -> None:
        """Continue the handshake; raises ssl.SSLWantReadError if more input is needed, or ssl.SSLError."""
        spare = self._spare
        if self._hello is not None:
            self._hello += data
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            hello = self._hello
            if spare is None or hello is None or not self._outgoing.pending:
                raise
            self._hello = None
            if not self.connection.session_reused:
                raise
            self._begin(spare, None)
            self._incoming.write(hello)
            self.connection.do_handshake()
        if spare is not None and self.connection.session_reused:
            raise ssl.SSLError("a session was resumed where certificates are verified")
        self.done = True

    def take(self) -> bytes:
        return self._outgoing.read()

    def wrap(self, data: bytes | bytearray | memoryview) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self.connection.write(view) :]
        return self._outgoing.read()

    def closing_alert(self) -> bytes:
        if self.done:
            with suppress(ssl.SSLError, OSError):  # the other side has not answered, or an alert has cut it off
                self.connection.unwrap()
        return self._outgoing.read()

    def facts(self, first: bool) -> TlsFacts:
        cipher = self.connection.cipher()
        version = (self.connection.version() or "").removeprefix("TLSv")
        return TlsFacts(version, suite_name(cipher[0]) if cipher else "", first)

    def chain(self) -> list[bytes]:
        from natsctl.server.tls.certificates import chain_of

        return chain_of(self.connection)

    def verified_chain(self) -> list[bytes]:
        from natsctl.server.tls.certificates import verified_chain_of

        return verified_chain_of(self.connection)


Layer: TypeAlias = "TlsLayer | StapledLayer"


class SecureTransport(asyncio.Transport):
    """The transport under a `TlsLayer`, as protocols above it see it."""

    __slots__ = ("_layer", "_raw")

    def __init__(self, raw: asyncio.Transport, layer: Layer) -> None:
        super().__init__()
        self._raw = raw
        self._layer = layer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._raw.is_closing():
            self._raw.write(self._layer.wrap(data))

    def close(self) -> None:
        if not self._raw.is_closing():
            self._raw.write(self._layer.closing_alert())
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)


_PAIR_FAULTS: Final = {"KEY_VALUES_MISMATCH": "tls: private key does not match public key"}
"""Log texts for OpenSSL's reasons when a key is loaded."""


class TlsFileError(OSError):
    """A certificate, a key or a setting that TLS cannot use; the text names it."""

    def __str__(self) -> str:
        return str(self.args[0])


def server_context(options: TlsOptions) -> ssl.SSLContext:
    pairs = list(options.certs)
    if options.cert_file is not None or options.key_file is not None:
        if options.key_file is None:
            raise TlsFileError("missing 'key_file' in TLS configuration")
        if options.cert_file is None:
            raise TlsFileError("missing 'cert_file' in TLS configuration")
        pairs.append((options.cert_file, options.key_file))
    contexts = [_context(options) for _ in pairs] or [_context(options)]
    for number, (context, pair) in enumerate(zip(contexts, pairs, strict=False), 1):
        _load_pair(context, pair, f" {number}/{len(pairs)}" if options.certs else "")
    if len(pairs) > 1:
        _choose_by_name(contexts, [cert for cert, _ in pairs])
    return contexts[0]


class TlsContexts:
    """The contexts of a listener, made of its files; with a spare where clients' certificates are verified."""

    def __init__(self, options: TlsOptions) -> None:
        self._first = server_context(options)
        self._spare = server_context(options) if options.verify else None

    @property
    def ready(self) -> bool:
        """True if a handshake can begin; false if `prepare` has to be awaited first."""
        return True

    async def prepare(self) -> str:
        """Fetch data for a handshake; return the reason for a failure."""
        return ""

    def layer(self) -> Layer:
        return TlsLayer(self._first, spare=self._spare)


def _context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites = options.cipher_suites or tuple(SUITES)
    below_13 = [(SUITES | INSECURE_SUITES)[name] for name in suites if name not in TLS13_SUITES]
    only_13 = options.min_version == "1.3" or not below_13
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if only_13 else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # The order of the client wins: it prefers the suite that is fast on its hardware.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        if below_13:
            context.set_ciphers(":".join(below_13))
    except ssl.SSLError as error:
        raise TlsFileError("cipher_suites: OpenSSL has none of them") from error
    try:
        _prefer_curves(context, options.curve_preferences)
    except (ssl.SSLError, ValueError) as error:
        names = ", ".join(options.curve_preferences)
        raise TlsFileError(f"curve_preferences: {names} cannot be required with this Python: {error}") from error
    if options.verify:
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # of TLS 1.3: no session is resumed, see TlsLayer
    if options.ca_file is not None:
        _load_authorities(context, options.ca_file)
    elif options.verify:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _prefer_curves(context: ssl.SSLContext, curves: tuple[str, ...]) -> None:
    """Restrict the context to the curves where this Python can: from 3.15 to several, before to one."""
    names = [CURVES[curve] for curve in curves]
    set_groups: Callable[[str], None] | None = getattr(context, "set_groups", None)
    if names and set_groups is not None:
        set_groups(":".join(names))
    elif len(names) == 1:
        context.set_ecdh_curve(names[0])


def _load_pair(context: ssl.SSLContext, pair: tuple[Path, Path], which: str) -> None:
    fault = f"error parsing X509 certificate/key pair{which}: "
    for path in pair:
        _check_readable(path, fault)
    try:
        context.load_cert_chain(pair[0], pair[1], password=_no_password)
    except ssl.SSLError as error:
        raise TlsFileError(f"{fault}{_PAIR_FAULTS.get(error.reason or '', 'no certificate and key in PEM')}") from error
    except ValueError as error:
        raise TlsFileError(f"{fault}{error}") from error


def _no_password() -> str:
    """Refuse an encrypted key; OpenSSL would ask for its password at the terminal."""
    raise ValueError("the private key is encrypted")


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path, "")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsFileError("failed to parse root ca certificate") from error


def _check_readable(path: Path, fault: str) -> None:
    try:
        read_file(path)
    except OSError as error:
        raise TlsFileError(f"{fault}open {path}: {(error.strerror or str(error)).lower()}") from error


def _choose_by_name(contexts: list[ssl.SSLContext], files: list[Path]) -> None:
    """Choose among the certificates by the server name of a client's handshake; the first serves all other names."""
    from natsctl.server.tls.certificates import dns_names

    named = {name: context for context, path in zip(contexts, files, strict=True) for name in dns_names(path)}

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower()
        context = named.get(asked) or named.get("*." + asked.partition(".")[2])
        if context is not None:
            connection.context = context

    contexts[0].sni_callback = choose


def client_context(options: TlsOptions | None) -> ssl.SSLContext:
    """Return the context of a remote; raises OSError (ssl.SSLError included) if a file is unusable."""
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
