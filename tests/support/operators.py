"""Operators, accounts and users for tests: keys, JWTs, creds files, and a configuration that trusts them.

    operator = Operator()
    orders = operator.account("ORDERS", exports=[{"name": "new", "subject": "new.>", "type": "stream"}])
    creds = operator.user(orders, name="alice", pub={"allow": ["new.>"]}).creds
    Path("nats.conf").write_text(operator.conf())

The fields of `nats` in a JWT are given as keywords, named as in its JSON. Limits that are not given are none.

`login` connects a client that authenticates with a JWT and returns a `Visitor`; `said` holds what the server sent to
it, byte for byte, and `open` whether the connection is still open.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

import nkeys

ALL_DAY = [{"start": "23:30:00", "end": "00:30:00"}, {"start": "00:00:00", "end": "23:59:59"}]
"""Hours that hold at any time: the second range alone ends a second before midnight."""

Kind = Literal["operator", "account", "user"]

PREFIXES: Final[dict[Kind, int]] = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
NO_USER_LIMITS: Final = {"subs": -1, "data": -1, "payload": -1}
NO_ACCOUNT_LIMITS: Final = {
    **NO_USER_LIMITS, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
}  # fmt: skip
NO_JETSTREAM_LIMITS: Final = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
_PART: Final = re.compile(r"-{3,}[^\n]*-{3,}\r?\n([\w\-.=]+)\r?\n-{3,}[^\n]*-{3,}")


class Key:
    def __init__(self, kind: Kind, seed: bytes = b"") -> None:
        self.kind = kind
        self.seed = bytes(seed or nkeys.encode_seed(secrets.token_bytes(32), PREFIXES[kind]))
        self._pair = nkeys.from_seed(self.seed)
        self.public: str = self._pair.public_key.decode()

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""
        signature: bytes = self._pair.sign(data)
        return signature


def base64url(data: bytes) -> str:
    """Return `data` in base 64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def encode_jwt(claims: dict[str, Any], signer: Key, header: dict[str, str] | None = None) -> str:
    """Return claims as a JWT, issued and signed by `signer`; `iat` is now where it is not said."""
    said = {"iat": int(time.time()), "iss": signer.public, **claims}
    said = {"jti": hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16], **said}
    parts = [header or {"typ": "JWT", "alg": "ed25519-nkey"}, said]
    text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    return f"{text}.{base64url(signer.sign(text.encode()))}"


def make_jwt(kind: str, subject: str, signer: Key, times: dict[str, Any] | None = None, /, **nats: Any) -> str:
    """Return a JWT of version 2; `times` are the claims beside `nats`: name, iat, exp, nbf."""
    return encode_jwt({"sub": subject, **(times or {}), "nats": {**nats, "type": kind, "version": 2}}, signer)


def activation(exporter: Key, importer: str, subject: str, kind: str, /, **claims: Any) -> str:
    """Return a token that lets the account `importer` import a subject of `exporter`."""
    return make_jwt("activation", importer, exporter, claims, subject=subject, kind=kind)


def format_creds(jwt: str, seed: bytes) -> str:
    """Return a creds file: a user's JWT and seed."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "NKEY Seed printed below can be used to sign and prove identity.\n"
        "NKEYs are sensitive and should be treated as secrets.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n\n"
        "*************************************************************\n"
    )


def parse_creds(text: str) -> tuple[str, bytes]:
    """Return JWT and seed of a creds file; ValueError where it is none."""
    parts: list[str] = _PART.findall(text)
    if len(parts) < 2:
        raise ValueError("a creds file holds a JWT and a seed")
    return parts[0], parts[1].encode()


@dataclass(frozen=True)
class UserLogin:
    key: Key
    jwt: str = field(repr=False)

    @property
    def creds(self) -> str:
        return format_creds(self.jwt, self.key.seed)

    def connect_options(self, nonce: str, *, padded: bool = False) -> dict[str, str]:
        signature = self.key.sign(nonce.encode())
        return {"jwt": self.jwt, "sig": base64.b64encode(signature).decode() if padded else base64url(signature)}


class OperatorAccount:
    """An account: its key, and what its JWT says."""

    def __init__(self, name: str, key: Key, nats: dict[str, Any], claims: dict[str, Any]) -> None:
        self.name = name
        self.key = key
        self.nats = nats
        self.claims = claims

    @property
    def public(self) -> str:
        return self.key.public

    def jwt(self, signer: Key) -> str:
        return make_jwt("account", self.public, signer, {"name": self.name, **self.claims}, **self.nats)


class Operator:
    """An operator with its accounts; one of them is the system account."""

    def __init__(self, chance: random.Random | None = None, /, **nats: Any) -> None:
        """Make an operator, `nats` is what its JWT says more; `chance` draws the keys, else the system does."""
        self._chance = chance
        self.key = self._new_key("operator")
        self.signing_key = self._new_key("operator")
        self.nats = {"signing_keys": [self.signing_key.public], **nats}
        self._jwt = make_jwt("operator", self.key.public, self.key, {"name": "O"}, **self.nats)
        self.accounts: dict[str, OperatorAccount] = {}
        self.instead: dict[str, str] = {}
        """JWTs of accounts, by public key, that are preloaded instead of the good ones."""
        self.system = self.account("SYS")

    def _new_key(self, kind: Kind) -> Key:
        return Key(kind, nkeys.encode_seed(self._chance.randbytes(32), PREFIXES[kind]) if self._chance else b"")

    @property
    def signer(self) -> Key:
        """The key that signs accounts: the operator's own, or its signing key where that must be."""
        return self.signing_key if self.nats.get("strict_signing_key_usage") else self.key

    def jwt(self) -> str:
        """Return the operator's JWT, always the same: a running server does not take another."""
        return self._jwt

    def account(self, name: str, claims: dict[str, Any] | None = None, /, **nats: Any) -> OperatorAccount:
        """Make an account; `limits` are laid over none."""
        nats["limits"] = {**NO_ACCOUNT_LIMITS, **nats.get("limits", {})}
        account = self.accounts[name] = OperatorAccount(name, self._new_key("account"), nats, claims or {})
        return account

    def user(
        self,
        account: OperatorAccount,
        claims: dict[str, Any] | None = None,
        /,
        *,
        signer: Key | None = None,
        **nats: Any,
    ) -> UserLogin:
        """Make a user; a `signer` is a signing key of the account."""
        key = self._new_key("user")
        said = {**NO_USER_LIMITS, **nats}
        if signer is not None:
            said["issuer_account"] = account.public
        return UserLogin(key, make_jwt("user", key.public, signer or account.key, claims or {}, **said))

    def scoped_user(
        self, account: OperatorAccount, signer: Key, claims: dict[str, Any] | None = None, /, **nats: Any
    ) -> UserLogin:
        """Make a user without rules of its own, signed by a scoped signing key."""
        key = self._new_key("user")
        nats = {"issuer_account": account.public, **nats}
        return UserLogin(key, make_jwt("user", key.public, signer, claims or {}, **nats))

    def preload(self) -> dict[str, str]:
        """Return the JWTs of all accounts, by public key."""
        return {account.public: account.jwt(self.signer) for account in self.accounts.values()} | self.instead

    def conf(self, more: str = "") -> str:
        """Return a nats.conf that trusts the operator and knows the accounts."""
        lines = [f"operator: {self.jwt()}", f"system_account: {self.system.public}", "resolver: MEMORY"]
        lines += ["resolver_preload {", *(f"  {key}: {jwt}" for key, jwt in self.preload().items()), "}"]
        return "\n".join([*lines, more, ""])


PATIENCE_S: Final = 30.0
"""Time limit for events that must come; a busy machine stands still for some seconds now and then."""
QUIET: Final = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}


class Visitor:
    opened: ClassVar[list[Visitor]] = []
    """All of this process, which tests/server/conftest.py closes and forgets after each test."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), PATIENCE_S)
        self._buffer = b""
        self.open = True
        self.info: dict[str, Any] = json.loads(self._line().removeprefix(b"INFO "))
        self.said: list[bytes] = []
        self.opened.append(self)

    @property
    def cid(self) -> int:
        return int(self.info["client_id"])

    def _read(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        self._buffer += data
        if not data:
            self.close()
        return self.open

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer and self._read():
            pass
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def show(self, **options: Any) -> list[bytes]:
        return self.say(b"CONNECT " + json.dumps({**QUIET, **options}).encode() + b"\r\n")

    def say(self, data: bytes) -> list[bytes]:
        """Send, and return the lines until the server has read it all or has closed; INFO is left out."""
        try:
            self._socket.sendall(data + b"PING\r\n")
        except OSError:
            self.open = False
        return self.hear(b"PONG")

    def hear(self, until: bytes) -> list[bytes]:
        """Return the lines up to one that begins with `until`, or to the end of the connection.

        INFO is left out, and so is PING, with which a server asks whether anybody is there.
        """
        heard: list[bytes] = []
        while (line := self._line()) or self.open or self._buffer:
            if line.startswith(until):
                break
            if line != b"PING" and not line.startswith(b"INFO "):
                heard.append(line)
        self.said += heard
        return heard

    def hear_message(self) -> bytes:
        while not (line := self._line()).startswith((b"MSG", b"HMSG")) and self.open:
            pass
        self._line()
        return line

    def request(self, subject: str, body: bytes = b"") -> bytes:
        """Return the answer to a request, without its headers; status lines begin with NATS/1.0."""
        # A subscription of its own: nats-server passes over one whose number has not yet gone with its only message.
        sid = b"r%d" % time.monotonic_ns()
        inbox = b"_INBOX." + sid
        head = b"SUB %b %b\r\nUNSUB %b 1\r\nPUB %b %b %d\r\n" % (inbox, sid, sid, subject.encode(), inbox, len(body))
        self._socket.sendall(head + body + b"\r\n")
        while not (line := self._line()).startswith((b"MSG", b"HMSG")):
            if not self.open:
                return line
        size = int(line.split(b" ")[-1])
        while len(self._buffer) < size + 2 and self._read():
            pass
        payload, self._buffer = self._buffer[:size], self._buffer[size + 2 :]
        return payload

    def ask(self, subject: str, body: bytes = b"") -> Any:
        return json.loads(self.request(subject, body))

    def close(self) -> None:
        self.open = False
        self._socket.close()


def login(url: str, user: UserLogin, **options: Any) -> Visitor:
    """Connect and show a user's JWT and signature; `options` are laid over them."""
    visitor = Visitor(url)
    visitor.show(**{**user.connect_options(visitor.info["nonce"]), **options})
    return visitor


def close_reason(system: Visitor, cid: int) -> str:
    """Return why a connection has ended, as connz of the system account shows it."""
    wanted = json.dumps({"state": 1, "cid": cid}).encode()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = system.ask("$SYS.REQ.SERVER.PING.CONNZ", wanted)["data"]["connections"]
        if found:
            return str(found[0]["reason"])
    return ""


def without_keys(line: bytes) -> bytes:
    return re.sub(rb"\b[AUO][A-Z2-7]{55}\b", b"KEY", line)
