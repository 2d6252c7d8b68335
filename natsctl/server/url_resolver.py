"""Account JWTs from a URL: the URL followed by the account's public key.

Theory of operation. Nothing here waits on the event loop. A login with an unknown account requests `fetch_all`,
which runs in a thread: it fetches the account, and the accounts it imports from, bounded in number, size and time. The
loop then reads the results with `take`, decides the login, and drops them.

Source: nats-server, accounts.go URLAccResolver.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection
from typing import Final

from natsctl.api.codec import go_quote
from natsctl.api.jwt_claims import AccountClaims, decode
from natsctl.api.jwt_token import MAX_TOKEN_BYTES, JwtError, is_public
from natsctl.server.http_client import HttpError, in_own_loop, request

FETCH_S: Final = 2.0
"""Time of one request. Source: nats-server, DEFAULT_ACCOUNT_FETCH_TIMEOUT."""
MAX_FETCHES: Final = 64
"""Maximum accounts that one login may fetch: its own and imported ones, recursively."""
MAX_FETCH_S: Final = 10.0
"""Time of all of them together."""

Fetched = dict[str, str]
"""JWTs by account, or ""."""


class FetchError(Exception):
    """A JWT that could not be fetched; the text is nats-server's."""


class UrlResolver:
    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._url = url if url.endswith("/") else f"{url}/"
        self.warn: Callable[[str], None] = lambda text: None
        """Logs what could not be fetched."""
        self._offered: Fetched = {}
        self._context = context

    def fetch(self, account: str) -> str | None:
        """Return the JWT of an account that is offered now, None for every other."""
        return self._offered.get(account) or None

    def take(self, fetched: tuple[Fetched, list[str]] | None) -> None:
        """Offer fetched JWTs to `fetch` until the next call, and log the faults; None: nothing."""
        self._offered, faults = fetched or ({}, [])
        for fault in faults:
            self.warn(f"Account fetch failed: {fault}")

    def fetch_all(self, account: str, known: Collection[str]) -> tuple[Fetched, list[str]]:
        """Return an account's JWT and those of the accounts that it imports from, but for `known`; and the faults.

        For a thread: it waits for the network, and touches nothing else.
        """
        found: Fetched = {}
        faults: list[str] = []
        wanted, end = [account], time.monotonic() + MAX_FETCH_S
        while wanted and len(found) < MAX_FETCHES and time.monotonic() < end:
            name = wanted.pop()
            if name in found or (name in known and name != account) or not is_public(name, "account"):
                continue
            try:
                found[name] = self.get(name)
                wanted += [item.account for item in decode(found[name], AccountClaims).nats.imports]
            except FetchError as fault:
                found[name] = ""
                faults.append(str(fault))
            except JwtError:
                continue  # which the registry says of it
        return found, faults

    def get(self, name: str) -> str:
        url = self._url + name
        where = f"could not fetch <{go_quote(_redacted(url))}>"
        try:
            answer = in_own_loop(
                request("GET", url, timeout_s=FETCH_S, max_bytes=MAX_TOKEN_BYTES, context=self._context)
            )
        except HttpError as fault:
            raise FetchError(f"{where}: {fault}") from None
        if answer.status != 200:
            raise FetchError(f"{where}: {answer.status} {answer.reason}")
        return answer.body.decode("utf-8", "replace").strip()


def _redacted(url: str) -> str:
    scheme, _, rest = url.partition("://")
    login, at, host = rest.partition("@")
    if not at or "/" in login or ":" not in login:
        return url
    return f"{scheme}://{login.partition(':')[0]}:xxxxx@{host}"
