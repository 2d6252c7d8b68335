"""Options of nats-py for login and TLS, from the settings of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natsctl.api.errors import UsageError
from natsctl.client.settings import Settings, jwt_in, resolve_either, resolve_file, resolve_text, seed_in

if TYPE_CHECKING:
    import ssl


def login_options(settings: Settings) -> dict[str, Any]:
    """Return the keyword arguments of nats-py's `connect` for the login; raises UsageError for an unreadable secret.

    Order: user, creds, nkey, JWT with seed, JWT alone; a token goes beside any of them. A user without a password is
    a token.
    """
    options: dict[str, Any] = {}
    if settings.token:
        options["token"] = resolve_text(settings.token, "token")
    if settings.user and settings.password:
        return {**options, "user": settings.user, "password": resolve_text(settings.password, "password")}
    if settings.user:
        return {**options, "token": settings.user}
    if settings.creds:
        text = resolve_file(settings.creds, "creds")
        return {**options, **_signed(jwt_in(text, "creds"), _checked(seed_in(text, "creds"), "creds"))}
    if settings.nkey:
        return {**options, "nkeys_seed_str": _checked(seed_in(resolve_file(settings.nkey, "nkey"), "nkey"), "nkey")}
    if settings.user_jwt:
        jwt = jwt_in(resolve_either(settings.user_jwt, "jwt", "ey"), "jwt")
        seed = resolve_either(settings.user_seed, "seed", "SU") if settings.user_seed else ""
        return {**options, **_signed(jwt, _checked(seed_in(seed, "seed"), "seed") if seed else "")}
    return options


def _checked(seed: str, name: str) -> str:
    """Return the seed, if it is one; raises UsageError."""
    import nkeys

    try:
        nkeys.from_seed(bytearray(seed.encode())).wipe()
    except (nkeys.NkeysError, ValueError) as failure:
        raise UsageError(f"{name}: the NKey seed in it is not valid") from failure
    return seed


def _signed(jwt: str, seed: str) -> dict[str, Any]:
    """Return the callbacks that show a JWT and sign the server's nonce; without a seed the JWT is a bearer token."""

    def show() -> bytes:
        return jwt.encode()

    def sign(nonce: str) -> bytes:
        if not seed:
            return b""
        import base64

        import nkeys

        pair = nkeys.from_seed(bytearray(seed.encode()))
        try:
            return base64.b64encode(pair.sign(nonce.encode()))
        finally:
            pair.wipe()

    return {"user_jwt_cb": show, "signature_cb": sign}


def tls_context(settings: Settings, urls: tuple[str, ...]) -> ssl.SSLContext | None:
    """Return the TLS context that the settings or a tls:// or wss:// URL ask for, or None.

    Raises UsageError for an unreadable file.
    """
    wanted = settings.ca or settings.cert or settings.key or settings.tls_first or settings.tls_insecure
    if not wanted and not any(url.startswith(("tls://", "wss://")) for url in urls):
        return None
    import ssl

    if bool(settings.cert) != bool(settings.key):
        raise UsageError("a TLS certificate and its key go together", hint="give both --tlscert and --tlskey")
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:
            context.load_cert_chain(settings.cert, settings.key)
        if settings.tls_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    except OSError as failure:
        raise UsageError(f"TLS: {failure.strerror or failure}: {failure.filename or settings.ca}") from failure
    return context
