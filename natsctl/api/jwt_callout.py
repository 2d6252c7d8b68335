"""The request of an authentication callout: a JWT that describes a client that wants to log in.

Keys and their order follow nats-server (package jwt, authorization_claims.go). The response is in
`jwt_claims.py`, what may be wrong with it in `jwt_validation.py`.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from natsctl.api.jwt_claims import Struct
from natsctl.api.nkey_pairs import SigningPair

AUDIENCE: Final = "nats-authorization-request"
KIND: Final = "authorization_request"
_HEADER: Final = b'{"typ":"JWT","alg":"ed25519-nkey"}'


class ServerId(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server that asks; the response may be sealed for its key `xkey`."""

    name: str
    host: str
    id: str
    version: str = ""
    cluster: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    xkey: str = ""


class ClientInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client's connection, with fields from an operator's JWT."""

    host: str = ""
    id: int = 0
    user: str = ""
    name: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    name_tag: str = ""
    kind: str = ""
    type: str = ""
    mqtt_id: str = ""
    nonce: str = ""
    """Nonce that the client has signed, or empty."""


class ConnectFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client's fields of CONNECT, secrets included."""

    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int

    def __repr__(self) -> str:
        """Return the representation without secrets."""
        return f"ConnectFields(user={self.user!r}, nkey={self.nkey!r}, name={self.name!r}, …)"


class ClientTls(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The TLS of the connection; certificates are PEM, the client's own first."""

    version: str = ""
    cipher: str = ""
    certs: list[str] = msgspec.field(default_factory=list)
    """Certificates that were sent and not verified."""
    verified_chains: list[list[str]] = msgspec.field(default_factory=list)


class AuthorizationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Claims of a request except the times."""

    server_id: ServerId
    user_nkey: str
    """Public key required for the user in the response; generated for this request."""
    client_info: ClientInfo
    connect_opts: ConnectFields
    client_tls: ClientTls | None = None
    request_nonce: str = ""
    type: str
    version: int


class AuthorizationRequestClaims(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request as a JWT of the server."""

    aud: str
    exp: int
    jti: str
    iat: int
    iss: str
    sub: str
    nats: AuthorizationRequest


def encode_request(claims: AuthorizationRequestClaims, key: SigningPair) -> bytes:
    """Return a request as a JWT that the server has signed."""
    signed = b".".join((_base64url(_HEADER), _base64url(msgspec.json.encode(claims))))
    return signed + b"." + _base64url(key.sign(signed))


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
