"""Trusted proxies: a proxy signs the nonce of the connection that it passes on, beside what the client shows."""

from __future__ import annotations

from collections.abc import Sequence

from natsctl.broker.auth.credentials import ConnectOptions, Refusal
from natsctl.broker.refusals import CloseReason

NOT_TRUSTED = Refusal("proxy is not trusted", reason=CloseReason.PROXY_NOT_TRUSTED)
PROXY_REQUIRED = Refusal("proxy connection required", reason=CloseReason.PROXY_REQUIRED)


def proxy_of(options: ConnectOptions, nonce: bytes, trusted: Sequence[str]) -> str | Refusal:
    """Return the key of the trusted proxy that passes a client on, "" for none; NOT_TRUSTED where none has signed.

    Without trusted proxies a signature means nothing. Source: nats-server, auth.go proxyCheck.
    """
    if not options.proxy_sig or not trusted:
        return ""
    from natsctl.api.jwt_token import JwtError, decode_base64url, has_signed

    try:
        signature = decode_base64url(options.proxy_sig)
    except JwtError:
        return NOT_TRUSTED
    return next((key for key in trusted if has_signed(key, nonce, signature)), NOT_TRUSTED)
