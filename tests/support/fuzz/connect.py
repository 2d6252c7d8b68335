"""Fuzzing CONNECT: its JSON, and the JWTs, signatures, passwords and tokens in it, good ones and spoilt.

Whatever comes, nobody is let in as somebody whose secret was not shown, and no secret is
written to the log or sent to the client.
"""

import base64
import json
import random
from functools import lru_cache
from typing import Any, Final

from natsctl.api.jwt_claims import OperatorClaims, decode
from natsctl.broker.auth.credentials import Authenticator
from natsctl.broker.auth.static_auth import StaticAuthenticator, User
from natsctl.broker.broker import Broker
from natsctl.broker.broker_options import BrokerOptions
from natsctl.broker.jwt.account_registry import MemoryResolver, trust_of
from natsctl.broker.jwt.authenticator import BrokerAccountSink, JwtAuthenticator
from natsctl.broker.session import Session
from natsctl.wire.ops import Limits
from tests.support.clock import VirtualClock
from tests.support.fuzz.protocol import pieces, spoilt
from tests.support.operators import Operator, base64url

PASSWORD: Final = "fuzz-password-5up3r"
TOKEN: Final = "fuzz-token-5ecr3t"
_SECRETS: Final = (PASSWORD, TOKEN)
_JSON: Final = (
    b"null", b"true", b"-1", b"1e400", b"18446744073709551616", b'""', b"[]", b"{}", b"[" * 300, b'{"a":' * 300,
    b'"\\ud800"',
    b'"\\u0000"', b'"\xff"', b'"a\\nb\\u001b[2J"', b',"user":"alice"', b',"user":null', b'"jwt":"..",', b'"nkey":"U",',
    b'"sig":"%%%",', b'"protocol":9,', b'"verbose":"yes",', b'"pass":1,', b"NaN", b"\\", b'"', b"\r\n", b"\x00",
)  # fmt: skip


@lru_cache(maxsize=1)
def _operator_login() -> tuple[str, Any, JwtAuthenticator]:
    """Return an account, a user of it, and who knows both."""
    operator = Operator(random.Random(1))
    account = operator.account("A")
    user = operator.user(account, {"iat": 1}, name="alice")
    trust = trust_of([decode(operator.jwt(), OperatorClaims)], system_account=operator.system.public)
    return account.public, user, JwtAuthenticator(trust, MemoryResolver(operator.preload()))


def make(chance: random.Random) -> bytes:
    """Return the body of a CONNECT; `@SIG@` stands for the signature of the nonce."""
    said: dict[str, Any] = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, "name": "fuzz"}
    fields = {
        "user": chance.choice(("alice", "bob", "", "a\nb")),
        "pass": chance.choice((PASSWORD, "", PASSWORD[:-1], PASSWORD + "x")),
        "auth_token": chance.choice((TOKEN, TOKEN.upper(), "")),
        "jwt": _token(chance),
        "sig": chance.choice(("@SIG@", "", "AAAA", "@SIG@x")),
        "nkey": chance.choice((_operator_login()[1].key.public, "U" * 56, "é" * 20)),
    }
    said |= {name: value for name, value in fields.items() if chance.random() < 0.5}
    data = json.dumps(said).encode()
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        data = spoilt(data, chance, _JSON)
    return data


def _token(chance: random.Random) -> str:
    """Return the JWT of the user, mostly with something wrong in one of its parts."""
    parts = _operator_login()[1].jwt.split(".")
    at = chance.randrange(4)
    if at < 2 and chance.random() < 0.7:
        raw = base64.urlsafe_b64decode(parts[at] + "=" * (-len(parts[at]) % 4))
        parts[at] = base64url(spoilt(raw, chance, _JSON))
    elif at < 3:
        parts[at] = spoilt(parts[at].encode(), chance, (b".", b"=", b"+", b"_", b"-")).decode("utf-8", "replace")
    return ".".join(parts)


def check(data: bytes, chance: random.Random) -> None:
    """Send it to each kind of server; raises AssertionError, or the error of a fault of ours."""
    account, user, jwts = _operator_login()
    kind = chance.randrange(3)
    users = [User("alice", PASSWORD), User("", "", nkey=user.key.public)]
    auth: Authenticator = (jwts, StaticAuthenticator(TOKEN), StaticAuthenticator(users=users))[kind]
    options = BrokerOptions(auth=auth, limits=Limits(max_control_line=4096))
    broker = Broker(VirtualClock(), random.Random(1), options)
    notices: list[str] = []
    broker.notice = lambda session, text: notices.append(text)
    if kind == 0:
        BrokerAccountSink(broker, jwts)
    session = broker.connect("h", 1)
    session.take_output()
    sig = base64url(user.key.sign(session.login.nonce)).encode()
    for part in pieces(b"CONNECT " + data.replace(b"@SIG@", sig) + b"\r\nPING\r\n", chance):
        session.receive(part)
    heard = b"".join(session.take_output()).decode("utf-8", "replace")
    said = session.login.options
    named = (said.name, said.user, said.nkey, said.lang, said.version)
    for secret in (*_SECRETS, user.jwt, sig.decode()):
        if any(secret in text for text in named):
            continue  # it was spoilt into what is no secret
        assert not any(secret in text for text in (heard, *notices, repr(said))), f"{secret} is shown"
    if session.login.authenticated and session.close_reason is None:
        _rightly_in(session, kind, account, user, sig.decode())


def _rightly_in(session: Session, kind: int, account: str, user: Any, sig: str) -> None:
    options = session.login.options
    if kind == 0:
        # The last letter of base 64 has bits that mean nothing.
        shown, right = (options.jwt[:-1], options.sig[:85]), (user.jwt[:-1], sig[:85])
        assert shown == right, "let in without the right JWT and signature"
        assert session.account.name == account
    elif kind == 1:
        assert options.auth_token == TOKEN, "let in without the token"
    elif options.nkey:
        assert (options.nkey, options.sig[:85]) == (user.key.public, sig[:85]), "let in without a signature"
    else:
        assert (options.user, options.password) == ("alice", PASSWORD), "let in without the password"
