"""Responses of a service by the user that asks for them, with what becomes of the login on both servers."""

import re
import time
from collections.abc import Callable
from typing import Any, Final

from natsctl.api.nkey_pairs import public_text
from tests.support.callouts import ISSUER, Request
from tests.support.operators import ALL_DAY, Key, make_jwt

STRANGER: Final = Key("account")
OTHER_USER: Final = Key("user").public
OTHER_SERVER: Final = public_text("server", bytes(32))
ENDED: Final = 1_700_000_000
HOUR: Final = 3600

Make = Callable[[Request], bytes | None]


def without_keys(text: str) -> str:
    return re.sub(r"\b[AUN][A-Z2-7]{55}\b", "KEY", text)


def user_with(**nats: Any) -> Make:
    return lambda r: r.response(r.user(aud="FOO", nats=nats))


def _tampered(request: Request) -> bytes:
    good = request.response(request.user(aud="FOO"))
    return good[:-6] + (b"AAAAAA" if good[-6:] != b"AAAAAA" else b"BBBBBB")


def _elsewhen() -> list[dict[str, str]]:
    hour = (time.gmtime().tm_hour + 12) % 24
    return [{"start": f"{hour:02}:00:00", "end": f"{hour:02}:30:00"}]


VALIDATION: Final = "Authorization response had validation errors: "
USER: Final = "Error validating user JWT: "
VIOLATION: Final = "Auth callout violation: "

REFUSED: Final[dict[str, tuple[Make, str]]] = {
    "nothing": (lambda r: b"", VIOLATION + '"no reason supplied" on account "AUTH"'),
    "words": (lambda r: b"go away", "Expected 3 chunks"),
    "a user's JWT alone": (lambda r: r.user(aud="FOO").encode(), "Not an authorization request claim"),
    "a broken signature": (_tampered, "Claim failed V2 signature verification"),
    "of a stranger": (lambda r: r.response(r.user(aud="FOO"), STRANGER), "Auth callout signing key is unknown"),
    "an error of a stranger": (lambda r: r.response("", STRANGER, error="no"), "Auth callout signing key is unknown"),
    "for another request": (
        lambda r: r.response(r.user(aud="FOO"), sub=OTHER_USER),
        VIOLATION + "auth callout response is not for expected user",
    ),
    "for another server": (
        lambda r: r.response(r.user(aud="FOO"), aud=OTHER_SERVER),
        VIOLATION + "auth callout response is not for server",
    ),
    "for no server": (
        lambda r: r.response(r.user(aud="FOO"), aud="A"),
        VALIDATION + "Audience must be a server public key",
    ),
    "for no user": (lambda r: r.response(r.user(aud="FOO"), sub="x"), VALIDATION + "Subject must be a user public key"),
    "neither user nor error": (lambda r: r.response(), VALIDATION + "Error or Jwt is required"),
    "both user and error": (
        lambda r: r.response(r.user(aud="FOO"), error="no"),
        VALIDATION + "Only Error or Jwt can be set",
    ),
    "of an account that is none": (
        lambda r: r.response(r.user(aud="FOO"), nats={"issuer_account": "A"}),
        VALIDATION + "issuer_account is not an account public key",
    ),
    "expired": (lambda r: r.response(r.user(aud="FOO"), exp=ENDED), VALIDATION + "claim is expired"),
    "too early": (
        lambda r: r.response(r.user(aud="FOO"), nbf=int(time.time()) + HOUR),
        VALIDATION + "claim is not yet valid",
    ),
    "an error": (
        lambda r: r.response(error="WRONG PASSWORD"),
        "Auth callout service returned an error: WRONG PASSWORD",
    ),
    "a user that is no JWT": (lambda r: r.response("x"), "Expected 3 chunks"),
    "an account instead of a user": (
        lambda r: r.response(make_jwt("account", STRANGER.public, STRANGER)),
        "Not user claim",
    ),
    "an expired user": (lambda r: r.response(r.user(aud="FOO", exp=ENDED)), USER + "claim is expired"),
    "a user that is too early": (
        lambda r: r.response(r.user(aud="FOO", nbf=int(time.time()) + HOUR)),
        USER + "claim is not yet valid",
    ),
    "a user with a bad rule": (
        user_with(pub={"allow": ["a..b"]}),
        USER + 'subject "a..b" cannot contain consecutive `.`',
    ),
    "a user with a bad network": (user_with(src=["x"]), USER + 'invalid cidr "x" in user src limits'),
    "another user": (
        lambda r: r.response(r.user(ISSUER, OTHER_USER, aud="FOO")),
        'Expected authorized user of "KEY" but got "KEY" on account "AUTH"',
    ),
    "a user of a signing key": (
        user_with(issuer_account=STRANGER.public),
        'Error non operator mode account "AUTH": attempted to use issuer_account',
    ),
    "a user of a stranger": (
        lambda r: r.response(r.user(STRANGER, aud="FOO")),
        'Wrong issuer for auth callout response on account "AUTH", expected "KEY" got "KEY"',
    ),
    "a user without an account": (
        lambda r: r.response(r.user()),
        'No valid account "" for auth callout response on account "AUTH": account missing',
    ),
    "a user of an account that is not": (
        lambda r: r.response(r.user(aud="NOPE")),
        'No valid account "NOPE" for auth callout response on account "AUTH": account missing',
    ),
    "a user for WebSocket": (
        user_with(allowed_connection_types=["WEBSOCKET"]),
        'Authorized user on account "AUTH" not allowed to use connection type',
    ),
    "a user for the future": (
        user_with(allowed_connection_types=["FUTURE"]),
        'Authorized user on account "AUTH" using invalid connection type',
    ),
    "a user at other hours": (
        lambda r: user_with(times=_elsewhen(), times_location="UTC")(r),
        'Authorized user on account "AUTH" outside of valid connect times',
    ),
    "a user behind a proxy": (user_with(proxy_required=True), "Proxy connection required"),
}
"""By user: the response, and the reason in the event and in the log."""

PUBLISH: Final = {"pub": {"allow": ["a.>", "$SYS.REQ.USER.INFO"], "deny": ["a.no"]}}
ADMITTED: Final[dict[str, tuple[Make, dict[str, Any]]]] = {
    "plain": (user_with(), {"user": "plain", "account": "FOO"}),
    "renamed": (lambda r: r.response(r.user(aud="FOO", name="alice")), {"user": "alice", "account": "FOO"}),
    "in the global account": (
        lambda r: r.response(r.user(aud="$G")),
        {"user": "in the global account", "account": "$G"},
    ),
    "with rules": (
        user_with(**PUBLISH, resp={"max": 2, "ttl": 1_000_000_000}),
        {
            "user": "with rules",
            "account": "FOO",
            "permissions": {
                "publish": {"allow": ["$SYS.REQ.USER.INFO", "a.>"], "deny": ["a.no"]},
                "subscribe": {},
                "responses": {"max": 2, "ttl": 1_000_000_000},
            },
        },
    ),
    "in the service's account": (
        lambda r: r.response(r.user(aud="AUTH")),
        {
            "user": "in the service's account",
            "account": "AUTH",
            "permissions": {"publish": {"deny": ["$SYS.REQ.USER.AUTH"]}, "subscribe": {}},
        },
    ),
    "with a bearer token": (user_with(bearer_token=True), {"user": "with a bearer token", "account": "FOO"}),
    "from another network": (user_with(src=["10.0.0.0/8"]), {"user": "from another network", "account": "FOO"}),
    "with limits": (user_with(subs=1, payload=5), {"user": "with limits", "account": "FOO"}),
    "of this kind of connection": (
        user_with(allowed_connection_types=["standard", "FUTURE"]),
        {"user": "of this kind of connection", "account": "FOO"},
    ),
    "within its hours": (
        user_with(times=ALL_DAY, times_location="UTC"),
        {"user": "within its hours", "account": "FOO", "expires": True},
    ),
    "with an end": (
        lambda r: r.response(r.user(aud="FOO", exp=int(time.time()) + HOUR)),
        {"user": "with an end", "account": "FOO", "expires": True},
    ),
    "of an account with default permissions": (
        lambda r: r.response(r.user(aud="DEFAULTS")),
        {"user": "of an account with default permissions", "account": "DEFAULTS"},
    ),
}
"""By user: the response, and what the server tells the user about itself."""

RESPONSES: Final[dict[str, Make]] = {
    **{name: make for name, (make, _) in REFUSED.items()},
    **{name: make for name, (make, _) in ADMITTED.items()},
    "to FULL": lambda r: r.response(r.user(aud="FULL")),
    "to NARROW": lambda r: r.response(r.user(aud="NARROW")),
    "to SYS": lambda r: r.response(r.user(aud="SYS")),
}
