"""Requests of the system account about account JWTs: push, look up, list, pull, delete.

Source: nats-server, accounts.go.

Without a store (the resolver is what configuration lists) a pushed JWT comes into force for an account that is alive,
and is not kept. With one it is kept first.

A long JWT is read, checked and prepared in turns of their own (`broker.jobs`), and applied in one. Requests that arrive
meanwhile wait, so that all are answered in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from natsctl.api.jwt_claims import AccountClaims, decoding
from natsctl.api.jwt_token import JwtError, generic_claims, is_public
from natsctl.api.jwt_validation import CHECKED_AT_ONCE, account_checks, finding_mapping_fault
from natsctl.api.subject_index import Steps
from natsctl.api.units import SECOND
from natsctl.broker.broker import Broker
from natsctl.broker.imports.mappings import MAPPING_COST
from natsctl.broker.info import server_info
from natsctl.broker.jwt.account_registry import INVALID, AccountRegistry, AccountStoreError, JwtStore
from natsctl.broker.session import Session

DIGEST_BYTES: Final = 32
FILE_COST: Final = 64
"""Cost of reading and verifying a JWT: a quarter of a millisecond."""
DONE: Final = 200
FAILED: Final = 500
OF_ACCOUNT: Final = (b"$SYS.ACCOUNT.*.CLAIMS.UPDATE", b"$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE")
NOBODY: Final = "n/a"
"""Account name in answers about a JWT that cannot be read."""

Answerer = Callable[[str, bytes, bytes], Steps[None]]
"""Takes subject, reply and body of a request."""


class ClaimRequests:
    """Handlers of one broker's system account for requests about account JWTs."""

    def __init__(
        self, broker: Broker, book: AccountRegistry, store: JwtStore | None, note: Callable[[str], None]
    ) -> None:
        """Register the handlers; `note` logs a sentence for the operator."""
        self._broker = broker
        self._book = book
        self._store = store
        self._note = note

    def listen(self) -> None:
        store = self._store
        for subject in OF_ACCOUNT:
            self._on(subject, self._update_live if store is None else self._push_of_account)
        if store is None:
            return
        self._on(b"$SYS.REQ.CLAIMS.UPDATE", self._push)
        self._on(b"$SYS.REQ.CLAIMS.LIST", self._list)
        self._on(b"$SYS.REQ.CLAIMS.DELETE", self._delete)
        if store.full:
            self._on(b"$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._look_up)
            self._on(b"$SYS.REQ.CLAIMS.PACK", self._pack, b"responder")

    def _on(self, subject: bytes, answer: Answerer, queue: bytes = b"") -> None:
        def heard(subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Session | None) -> None:
            self._broker.jobs.run(answer(subject.decode("utf-8", "replace"), reply, payload))

        self._broker.system_account.subscribe(subject, heard, queue)

    # Answers

    def _send(self, reply: bytes, body: bytes) -> None:
        if reply:
            self._broker.system_account.publish(reply, b"", b"", body)

    def _respond(self, reply: bytes, **said: Any) -> None:
        if reply:
            self._send(reply, msgspec.json.encode({"server": server_info(self._broker), **said}))

    def _done(self, reply: bytes, account: str, message: str) -> None:
        named = {"account": account} if account else {}
        self._respond(reply, data={**named, "code": DONE, "message": message})

    def _failed(self, reply: bytes, account: str, message: str, fault: object) -> None:
        named = {"account": account} if account else {}
        self._note(f"{message} - {account} - {fault}" if account else f"{message} - {fault}")
        self._respond(reply, error={**named, "code": FAILED, "description": f"{message} - {fault}"})

    # Push

    def _update_live(self, subject: str, reply: bytes, payload: bytes) -> Steps[None]:
        """Apply a JWT without storing it."""
        account = _account_in(subject)
        token = payload.decode("utf-8", "replace")
        if not payload:
            self._failed(reply, account, "jwt update error", "request body is empty")
            return
        try:
            claims = yield from decoding(token, AccountClaims)
            if claims.sub != account:
                raise JwtError("subject does not match jwt content")
            for fault in account_checks(claims):
                yield CHECKED_AT_ONCE
                if fault and self._book.get(account) is not None:
                    raise JwtError(INVALID)
            if self._book.get(account) is None:
                self._done(reply, account, "jwt update skipped")
                return
            yield from self._book.update(account, token, self._broker.clock.now_ns(), claims)
        except JwtError as fault:
            self._failed(reply, account, "jwt update resulted in error", fault)
        else:
            self._done(reply, account, "jwt updated")

    def _push_of_account(self, subject: str, reply: bytes, payload: bytes) -> Steps[None]:
        return self._push(subject, reply, payload, _account_in(subject))

    def _push(self, subject: str, reply: bytes, payload: bytes, wanted: str = "") -> Steps[None]:
        """Store a JWT, and put it in force if its account is loaded; `wanted` is the expected account."""
        store, token = self._store, payload.decode("utf-8", "replace")
        assert store is not None
        what = "jwt update" if store.full else "jwt update cache"
        try:
            claims = yield from decoding(token, AccountClaims)
        except JwtError as unread:
            self._failed(reply, wanted if wanted and not store.full else NOBODY, f"{what} resulted in error", unread)
            return
        account = claims.sub
        failed = f"{what} resulted in error"
        if wanted not in ("", account):
            self._failed(reply, wanted, failed, "subject does not match jwt content")
        elif self._book.trust.strict and claims.iss == self._book.trust.operator:
            self._failed(reply, account, failed, "operator requires issuer to be a signing key")
        elif not store.full and self._book.get(account) is None:
            self._done(reply, account, f"{what} skipped")
        elif fault := (yield from _account_fault(claims)):
            text = "jwt validation failed" if store.full else f"{what} validation failed"
            self._failed(reply, account, text, fault)
        else:
            yield from self._keep(store, reply, claims, token, failed)

    def _keep(self, store: JwtStore, reply: bytes, claims: AccountClaims, token: str, failed: str) -> Steps[None]:
        account = claims.sub
        try:
            if store.save(account, token):
                yield from self._book.update(account, token, self._broker.clock.now_ns(), claims)
        except AccountStoreError as fault:
            self._failed(reply, account, failed, fault)
            return
        except JwtError as fault:  # stored anyway, as in nats-server
            self._note(f'DirResolver - Update for account "{account}" resulted in error {fault}')
        self._done(reply, account, "jwt updated" if store.full else "jwt updated cache")

    # Everything else

    def _look_up(self, subject: str, reply: bytes, payload: bytes) -> Steps[None]:
        assert self._store is not None
        yield 1
        self._send(reply, (self._store.fetch(_account_in(subject)) or "").encode())

    def _list(self, subject: str, reply: bytes, payload: bytes) -> Steps[None]:
        assert self._store is not None
        yield 1
        self._respond(reply, data=self._store.accounts())

    def _pack(self, subject: str, reply: bytes, payload: bytes) -> Steps[None]:
        """Send every JWT that has not expired, unless the asker has the same; an empty message is the end."""
        store = self._store
        assert store is not None
        now_s = self._broker.clock.now_ns() // SECOND
        digest, accounts = 0, store.accounts()
        for account in accounts:
            if token := store.fetch(account):
                digest ^= int.from_bytes(hashlib.sha256(token.encode()).digest(), "big")
            yield FILE_COST
        if payload != digest.to_bytes(DIGEST_BYTES, "big"):
            for account in accounts:
                token = store.fetch(account)
                yield FILE_COST
                if token and not _has_expired(token, now_s):
                    self._send(reply, f"{account}|{token}".encode())
        self._send(reply, b"")

    def _delete(self, subject: str, reply: bytes, payload: bytes) -> Steps[None]:
        """Delete the accounts that a JWT names which an operator made of itself."""
        assert self._store is not None
        issuer = ""
        try:
            claims = generic_claims(payload.decode("utf-8", "replace"))
            issuer = str(claims.get("sub", ""))
            accounts = self._to_delete(claims)
        except JwtError as fault:
            self._failed(reply, "", f"delete accounts request by {issuer} failed", fault)
            return
        faults: list[str] = []
        for account in accounts:
            yield FILE_COST
            try:
                self._store.delete(account)
                yield from self._book.forget(account)
            except AccountStoreError as fault:
                faults.append(str(fault))
        text = f"deleted {len(accounts) - len(faults)} accounts"
        if faults:
            self._failed(reply, "", f"{text}, failed for {len(faults)}", "\n".join(faults))
        else:
            self._done(reply, "", text)

    def _to_delete(self, claims: dict[str, Any]) -> list[str]:
        trust, store = self._book.trust, self._store
        assert store is not None
        if not store.may_delete:
            raise JwtError("delete must be enabled in server config")
        if claims.get("sub") != claims.get("iss"):
            raise JwtError("not self signed")
        if claims.get("iss") not in trust.keys:
            raise JwtError("not trusted")
        accounts = claims.get("nats", {}).get("accounts")
        if not isinstance(accounts, list):
            raise JwtError("malformed request")
        for account in accounts:
            if not isinstance(account, str) or not is_public(account, "account"):
                raise JwtError("malformed request")
            if account == self._broker.system_account.name:
                raise JwtError("not allowed to delete system account")
        return accounts


def _account_fault(claims: AccountClaims) -> Steps[str]:
    """Return the faults of a pushed account, or ""; times do not count."""
    faults = []
    for fault in account_checks(claims):
        yield CHECKED_AT_ONCE
        faults += [fault] if fault else []
    if faults:
        return f"validation errors: [{' '.join(faults)}]"
    for mapping in claims.nats.mappings.items():
        yield MAPPING_COST * len(mapping[1])
        if text := (yield from finding_mapping_fault(*mapping)):
            return text
    return ""


def _has_expired(token: str, now_s: int) -> bool:
    try:
        expires = generic_claims(token).get("exp", 0)
    except JwtError:
        return False  # sent as it is, as nats-server does
    return isinstance(expires, int) and 0 < expires < now_s


def _account_in(subject: str) -> str:
    """Return the account of `$SYS.ACCOUNT.<account>.…` and `$SYS.REQ.ACCOUNT.<account>.…`."""
    tokens = subject.split(".")
    return tokens[tokens.index("ACCOUNT") + 1]
