"""The TLS of a listener: its contexts, made of its files, which a reload replaces.

New connections use the contexts of the last reload, while existing ones keep theirs.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from natsctl.server.options import TlsOptions
from natsctl.server.tls.layer import TlsLayer
from natsctl.server.tls.names import CURVES, INSECURE_SUITES, SUITES, TLS13_SUITES

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.server.process.log import Log

RATE_WINDOW_S: Final = 1.0
"""The interval of `connection_rate_limit`."""

_PAIR_FAULTS: Final = {"KEY_VALUES_MISMATCH": "tls: private key does not match public key"}
"""Texts for OpenSSL's reasons."""


class TlsFileError(OSError):
    """A certificate, a key or a setting that TLS cannot use; the text names it."""

    def __str__(self) -> str:
        return str(self.args[0])


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the listener's context; raises TlsFileError."""
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


class TlsContexts(NamedTuple):
    """The contexts of a listener; `spare`, of the same files, stands by where clients' certificates are verified."""

    first: ssl.SSLContext
    spare: ssl.SSLContext | None


def tls_contexts(options: TlsOptions) -> TlsContexts:
    """Return the contexts of a listener; raises TlsFileError."""
    return TlsContexts(server_context(options), server_context(options) if options.verify else None)


def _context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites = options.cipher_suites or tuple(SUITES)
    below_13 = [(SUITES | INSECURE_SUITES)[name] for name in suites if name not in TLS13_SUITES]
    only_13 = options.min_version == "1.3" or not below_13
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if only_13 else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # All suites here are good: let the client have the one that is quick where it runs.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        if below_13:
            context.set_ciphers(":".join(below_13))
    except ssl.SSLError as error:
        raise TlsFileError("cipher_suites: OpenSSL has none of them") from error
    try:
        _prefer_curves(context, options.curve_preferences)
    except (ssl.SSLError, ValueError) as error:
        raise TlsFileError(f"curve_preferences: {error}") from error
    if options.verify:
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # of TLS 1.3: no session is resumed, see TlsLayer
    if options.ca_file is not None:
        _load_authorities(context, options.ca_file)
    elif options.verify:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _prefer_curves(context: ssl.SSLContext, curves: tuple[str, ...]) -> None:
    """Hold the context to the curves where this Python can: to several from 3.15 on, to one before."""
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
    """Refuse a key that asks for a password, instead of asking the terminal."""
    raise ValueError("the private key is encrypted")


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path, "")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsFileError("failed to parse root ca certificate") from error


def _check_readable(path: Path, fault: str) -> None:
    try:
        from natsctl.server.conf.syntax import read_file

        read_file(path)
    except OSError as error:
        raise TlsFileError(f"{fault}open {path}: {(error.strerror or str(error)).lower()}") from error


def _choose_by_name(contexts: list[ssl.SSLContext], files: list[Path]) -> None:
    """Choose among the certificates by the server name of a client's handshake; the first serves all other names."""
    from natsctl.server.tls.certificate import dns_names

    named = {name: context for context, path in zip(contexts, files, strict=True) for name in dns_names(path)}

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower()
        context = named.get(asked) or named.get("*." + asked.partition(".")[2])
        if context is not None:
            connection.context = context

    contexts[0].sni_callback = choose


class ListenerTls:
    """The TLS of new connections of a listener; `options` is None where it is in clear."""

    def __init__(self, options: TlsOptions | None, allow_non_tls: bool = False) -> None:
        """Load the files; raises TlsFileError."""
        self._contexts: TlsContexts
        self.options: TlsOptions | None = None
        self.allow_non_tls = False
        self.blocked = 0
        """Connections refused for the rate since the last log line about them."""
        self._window_end = 0.0
        self._taken = 0
        self.replace(options, allow_non_tls)

    def replace(
        self, options: TlsOptions | None, allow_non_tls: bool = False, contexts: TlsContexts | None = None
    ) -> None:
        """Use other files; raises TlsFileError, and then the old ones stay.

        With `contexts`, made of those options before, no file is read and nothing is raised.
        """
        if options is not None:
            import natsctl.server.tls.listener  # noqa: F401  # now, and not with the first client

            self._contexts = contexts or tls_contexts(options)
        self.options = options
        self.allow_non_tls = allow_non_tls

    def layer(self) -> TlsLayer:
        """Return the server's side of a new connection."""
        return TlsLayer(self._contexts.first, spare=self._contexts.spare)

    def admits(self) -> bool:
        """Count one handshake, and return whether the rate allows it."""
        limit = self.options.connection_rate_limit if self.options is not None else 0
        if limit <= 0:
            return True
        now = time.monotonic()
        if now > self._window_end:
            self._taken, self._window_end = 0, now + RATE_WINDOW_S
        else:
            self._taken += 1
        if self._taken < limit:
            return True
        self.blocked += 1
        return False

    def log_blocked(self, log: Log) -> None:
        """Log how many connections the rate refused; called once a second while there are any."""
        blocked, self.blocked = self.blocked, 0
        if blocked:
            log.warn(f"Rejected {blocked} connections due to TLS rate limiting")
