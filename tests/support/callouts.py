"""A service that decides about logins (authentication callout), and what its responses are made of.

    with CalloutService(url, lambda request: request.response(request.user(aud="A")), user="auth", password="pwd"):
        ...

The service is a client of nats-py on a loop and thread of its own, so that a test may wait for sockets meanwhile.
`decide` gets each `Request` and returns the response, or None where the service is to say nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from natsctl.api.jwt_token import decode_base64url
from natsctl.api.nkey_pairs import CurvePair
from tests.support import patient_client
from tests.support.operators import Key, UserLogin, encode_jwt

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
WITHIN_S: Final = 30.0
ISSUER: Final = Key("account", b"SAANDLKMXL6CUS3CP52WIXBEDN6YJ545GDKC65U5JZPPV6WH6ESWUA6YAI")
"""An account key that no account has to have: it signs what the service says."""


def claims_of(token: bytes | str) -> dict[str, Any]:
    text = token if isinstance(token, str) else token.decode()
    found: dict[str, Any] = json.loads(decode_base64url(text.split(".")[1]))
    return found


@dataclass(frozen=True)
class Request:
    """One request: its token, its header, and what the token says."""

    token: str
    header: dict[str, str]
    claims: dict[str, Any]
    reply: str = ""

    @property
    def key(self) -> str:
        return str(self.claims["nats"]["user_nkey"])

    @property
    def server(self) -> Any:
        return self.claims["nats"]["server_id"]

    @property
    def client(self) -> Any:
        return self.claims["nats"]["client_info"]

    @property
    def connect(self) -> Any:
        return self.claims["nats"]["connect_opts"]

    @property
    def tls(self) -> Any:
        return self.claims["nats"].get("client_tls")

    def user(self, signer: Key = ISSUER, subject: str = "", /, *, aud: str = "", **claims: Any) -> str:
        """Return a user's JWT; `nats` among the claims is laid over no limits."""
        rules = {"subs": -1, "data": -1, "payload": -1, **claims.pop("nats", {}), "type": "user", "version": 2}
        named = {"aud": aud} if aud else {}
        return encode_jwt({"sub": subject or self.key, **named, **claims, "nats": rules}, signer)

    def response(self, user: str = "", signer: Key = ISSUER, *, error: str = "", **claims: Any) -> bytes:
        said = {"jwt": user, "error": error, **claims.pop("nats", {})}
        body = {key: value for key, value in said.items() if value}
        body |= {"type": "authorization_response", "version": 2}
        return encode_jwt({"sub": self.key, "aud": self.server["id"], **claims, "nats": body}, signer).encode()


Decide = Callable[[Request], bytes | None]


class CalloutService:
    """A client that answers requests of a server until its context ends."""

    def __init__(self, url: str, decide: Decide, curve: CurvePair | None = None, **options: Any) -> None:
        """Connect to `url` with the options of nats-py; `curve` opens what is sealed. `login` is an operator's user."""
        self._url = url
        self._decide = decide
        self._curve = curve
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="callout service")
        self.requests: queue.Queue[Request] = queue.Queue()
        self.asked = 0
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        """Refused logins, as the owner of the account gets them."""
        self.failures: list[BaseException] = []

    def __enter__(self) -> CalloutService:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(WITHIN_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._nats.close(), self._loop).result(WITHIN_S)
        self._stop()
        assert not self.failures, self.failures

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_S)
        self._loop.close()

    async def _open(self) -> None:
        options = dict(self._options)
        login = options.pop("login", None)
        if isinstance(login, UserLogin):
            options["user_jwt_cb"] = lambda: login.jwt.encode()
            options["signature_cb"] = lambda nonce: _signature(login, nonce)
        self._nats = await patient_client.connect(self._url, allow_reconnect=False, **options)
        await self._nats.subscribe(SUBJECT, cb=self._on_request)
        await self._nats.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR", cb=self._on_event)
        await self._nats.flush()

    async def _on_request(self, message: Any) -> None:
        self.asked += 1
        try:
            header, token = dict(message.headers or {}), message.data
            if self._curve is not None:
                token = self._curve.open(token, header["Nats-Server-Xkey"])
            request = Request(token.decode(), header, claims_of(token), message.reply)
            self.requests.put(request)
            answer = self._decide(request)
        except BaseException as failure:  # the test's own: it is raised where the context ends
            self.failures.append(failure)
            return
        if answer is not None:
            await message.respond(answer)

    async def _on_event(self, message: Any) -> None:
        self.events.put(json.loads(message.data))

    def request(self) -> Request:
        return self.requests.get(timeout=WITHIN_S)

    def event(self, user: str | None = None) -> dict[str, Any]:
        """Return the next event about a refused login, that of a user where one is named: events come late."""
        while True:
            event = self.events.get(timeout=WITHIN_S)
            if user is None or event["client"].get("user") == user:
                return event

    def ask(self, subject: str, body: bytes = b"") -> Any:
        """Return the JSON of the answer to a request of the service's own."""

        async def asked() -> Any:
            return json.loads((await self._nats.request(subject, body, timeout=WITHIN_S)).data)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(WITHIN_S)


def _signature(login: UserLogin, nonce: str) -> bytes:
    return base64.b64encode(login.key.sign(nonce.encode()))


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)
    return found
