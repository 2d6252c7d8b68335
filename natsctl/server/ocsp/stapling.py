"""TLS with stapled OCSP responses: contexts and layer of listeners that staple.

Python's `ssl` cannot answer a client's request for a certificate's status, so these listeners use pyOpenSSL with the
OpenSSL of the package `cryptography`. The layer does the same as `TlsLayer`, and the rules are the same. Where clients'
certificates are verified, the context keeps no session and takes none, so that there is no spare context.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from OpenSSL import SSL

from natsctl.broker.auth.credentials import TlsFacts
from natsctl.server.ocsp.staples import Staple, StapleError
from natsctl.server.options import TlsOptions
from natsctl.server.tls.contexts import (
    CURVES,
    INSECURE_SUITES,
    READ_BYTES,
    SUITES,
    TLS13_SUITES,
    TlsContexts,
    TlsFileError,
    server_context,
    suite_name,
)

OUTPUT_BYTES: Final = 64 * 1024
"""Bytes of TLS records that one call takes from OpenSSL: four records; the buffer is allocated each time."""
_MAX_PLAIN_BYTES: Final = 1 << 30
"""Maximum plaintext per call of OpenSSL (its limit is 2 GiB)."""

_ELLIPTIC: Final = {"CurveP256": "SECP256R1", "CurveP384": "SECP384R1", "CurveP521": "SECP521R1"}
"""Names in `curve_preferences` that this layer can require, and the library's."""


class StapledLayer:
    """The server's side of a TLS connection that staples, without I/O; see `TlsLayer`."""

    __slots__ = ("_connection", "_verify_code", "done", "ended")

    def __init__(self, context: SSL.Context) -> None:
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()
        self._verify_code: list[int] = []
        self._connection.set_app_data(self._verify_code)
        self.done = False
        self.ended = False
        """The other side has sent its closing alert."""

    def feed(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        try:
            if data:
                self._connection.bio_write(data)
            if not self.done:
                self._connection.do_handshake()
                self.done = True
            while part := self._connection.recv(READ_BYTES):
                parts.append(part)
            self.ended = True
        except SSL.WantReadError:
            pass
        except SSL.ZeroReturnError:
            self.ended = True
        except SSL.Error as error:
            raise self._converted(error) from error
        return b"".join(parts)

    def _converted(self, error: SSL.Error) -> ssl.SSLError:
        queue = error.args[0] if error.args and isinstance(error.args[0], list) else []
        words = str(queue[-1][-1]) if queue else "unexpected eof"
        reason = words.replace("ssl/tls alert", "sslv3 alert").upper().replace(" ", "_")
        if reason != "CERTIFICATE_VERIFY_FAILED":
            found = ssl.SSLError(1, words)
        else:
            found = ssl.SSLCertVerificationError(1, words)
            found.verify_code = self._verify_code[-1] if self._verify_code else 0
        found.reason = reason
        return found

    def take(self) -> bytes:
        parts: list[bytes] = []
        with suppress(SSL.WantReadError):
            while not parts or len(parts[-1]) == OUTPUT_BYTES:
                parts.append(self._connection.bio_read(OUTPUT_BYTES))
        return b"".join(parts)

    def wrap(self, data: bytes | bytearray | memoryview) -> bytes:
        view = memoryview(data)
        try:
            while view:
                view = view[self._connection.send(bytes(view[:_MAX_PLAIN_BYTES])) :]
        except SSL.Error as error:
            raise self._converted(error) from error
        return self.take()

    def closing_alert(self) -> bytes:
        if self.done:
            with suppress(SSL.Error):
                self._connection.shutdown()
        return self.take()

    def facts(self, first: bool) -> TlsFacts:
        version = self._connection.get_protocol_version_name().removeprefix("TLSv")
        return TlsFacts(version, suite_name(self._connection.get_cipher_name() or ""), first)

    def chain(self) -> list[bytes]:
        own = self._connection.get_peer_certificate(as_cryptography=True)
        if own is None:
            return []
        rest = self._connection.get_peer_cert_chain(as_cryptography=True) or []
        chain = [_der(one) for one in [own, *rest]]
        return chain[1:] if chain[1:2] == chain[:1] else chain

    def verified_chain(self) -> list[bytes]:
        return [_der(one) for one in self._connection.get_verified_chain(as_cryptography=True) or []]


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    der: bytes = certificate.public_bytes(Encoding.DER)
    return der


class StapledContexts(TlsContexts):
    def __init__(self, options: TlsOptions, staples: dict[Path, Staple]) -> None:
        """Load the files, with the staples of some of them; raises TlsFileError."""
        server_context(options)  # reports faults of the files with nats-server's texts
        self._staples = tuple(staples.values())
        pairs = [(cert, key) for cert, key in options.pairs if cert is not None and key is not None]
        contexts = [_context(options, cert, key, staples.get(cert)) for cert, key in pairs]
        if len(contexts) > 1:
            _choose_by_name(contexts, [cert for cert, _ in pairs])
        self._chosen = contexts[0]

    @property
    def ready(self) -> bool:
        return all(staple.in_force is not None for staple in self._staples)

    async def prepare(self) -> str:
        try:
            for staple in self._staples:
                if staple.in_force is None:
                    await staple.found()
        except StapleError as why:
            return str(why)
        return ""

    def layer(self) -> StapledLayer:
        return StapledLayer(self._chosen)


def _context(options: TlsOptions, cert: Path, key: Path, staple: Staple | None) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    suites = options.cipher_suites or tuple(SUITES)
    below_13 = [(SUITES | INSECURE_SUITES)[name] for name in suites if name not in TLS13_SUITES]
    only_13 = options.min_version == "1.3" or not below_13
    context.set_min_proto_version(SSL.TLS1_3_VERSION if only_13 else SSL.TLS1_2_VERSION)
    context.set_options(SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION)
    try:
        if below_13:
            context.set_cipher_list(":".join(below_13).encode())
        context.use_certificate_chain_file(str(cert))
        context.use_privatekey_file(str(key))
        context.check_privatekey()
        if options.ca_file is not None:
            context.load_verify_locations(str(options.ca_file))
    except SSL.Error as error:
        raise TlsFileError(f"error parsing X509 certificate/key pair: {error}") from error
    _prefer_curve(context, options.curve_preferences)
    if options.verify:
        _verify(context, options)
    if staple is not None:
        context.set_ocsp_server_callback(lambda connection, data: staple.in_force or b"")
    return context


def _prefer_curve(context: SSL.Context, curves: tuple[str, ...]) -> None:
    """Restrict the context to a single curve, as the other layer does; several restrict nothing."""
    if len(curves) != 1:
        return
    from cryptography.hazmat.primitives.asymmetric import ec

    name = _ELLIPTIC.get(curves[0])
    if name is None:
        known = ", ".join(_ELLIPTIC)
        raise TlsFileError(f"curve_preferences: {CURVES[curves[0]]} cannot be required with stapling; one of {known}")
    context.set_tmp_ecdh(getattr(ec, name)())


def _verify(context: SSL.Context, options: TlsOptions) -> None:
    """Require clients' certificates, and keep no sessions: OpenSSL would not verify those again."""
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    if options.ca_file is None:
        paths = ssl.get_default_verify_paths()
        context.load_verify_locations(paths.cafile, paths.capath)

    def checked(connection: SSL.Connection, certificate: object, code: int, depth: int, ok: int) -> bool:
        codes = connection.get_app_data()
        if not ok and codes is not None:
            codes.append(code)
        return bool(ok)

    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, checked)


def _choose_by_name(contexts: list[SSL.Context], files: list[Path]) -> None:
    """Choose among the certificates by the server name of a client's handshake; the first serves all other names."""
    from natsctl.server.tls.certificates import dns_names

    named = {name: context for context, path in zip(contexts, files, strict=True) for name in dns_names(path)}

    def choose(connection: SSL.Connection) -> None:
        asked = (connection.get_servername() or b"").decode("ascii", "replace").lower()
        context = named.get(asked) or named.get("*." + asked.partition(".")[2])
        if context is not None:
            connection.set_context(context)

    contexts[0].set_tlsext_servername_callback(choose)
