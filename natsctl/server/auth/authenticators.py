"""Who knows the users of each kind of listener, from server options: users are shared, the rest may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from natsctl.broker.account import SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from natsctl.broker.auth.grant import Authenticator
    from natsctl.server.options import ServerOptions


def authenticator(options: ServerOptions) -> Authenticator | None:
    """Return who knows the users, None where everybody is let in."""
    if options.operator is not None:
        from natsctl.server.auth.operator_mode import jwt_authenticator

        if (jwts := jwt_authenticator(options)) is not None:
            return jwts
    if not (options.users or options.user or options.token):
        return None
    from natsctl.broker.auth.static_auth import StaticAuthenticator, User

    users = options.users + ((User(options.user, options.password),) if options.user else ())
    if users and not options.no_auth_user and all(user.account == SYSTEM_ACCOUNT for user in users):
        # Who names users of the system account alone does not mean to lock everybody else out.
        import secrets

        anyone = User(secrets.token_hex(16), secrets.token_hex(16))
        known = (*users, anyone)
        return StaticAuthenticator("", known, anyone.name, hidden_default=True, **_mapping(options, "STANDARD"))
    return StaticAuthenticator(options.token, users, options.no_auth_user, **_mapping(options, "STANDARD"))


def websocket_authenticator(options: ServerOptions, main: Authenticator | None) -> Authenticator | None:
    """Return who knows the users of the WebSocket listener, where `main` does for all others.

    Its own user, token or no_auth_user stand instead of the server's. INFO asks for credentials there also where a
    silent client is let in.
    """
    websocket = options.websocket
    if websocket is None or options.operator is not None:
        return main
    from natsctl.broker.auth.static_auth import StaticAuthenticator, User

    if websocket.user or websocket.token or websocket.no_auth_user:
        token, silent = websocket.token, websocket.no_auth_user
        single = (User(websocket.user, websocket.password),) if websocket.user else ()
    elif main is None:
        return None
    else:
        token, silent = options.token, options.no_auth_user
        single = (User(options.user, options.password),) if options.user else ()
    users = options.users + single
    return StaticAuthenticator(token, users, silent, hidden_default=True, **_mapping(options, "WEBSOCKET"))


class _Mapping(TypedDict):
    map_certificates: bool
    mapped_types: frozenset[str]


def _mapping(options: ServerOptions, kind: str) -> _Mapping:
    """Return how certificates name users on a listener."""
    blocks = {"STANDARD": options.tls, "WEBSOCKET": options.websocket.tls if options.websocket else None}
    mapped = frozenset(kind for kind, tls in blocks.items() if tls is not None and tls.verify_and_map)
    return {"map_certificates": kind in mapped, "mapped_types": mapped}
