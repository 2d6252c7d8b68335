# A service that decides who may log in to a server with auth_callout (examples/configs/auth-callout.conf):
#
#     python service.py nats://127.0.0.1:4222 ../configs/auth-callout-issuer.seed
#
# It needs nats-py and nkeys. Replace `find_user` by whatever knows your users: a directory, a database, tokens of an
# identity provider. The server waits for an answer as long as `authorization { timeout }` says.

import asyncio
import base64
import hmac
import json
import os
import sys
import time
from pathlib import Path

import nats
import nkeys

USERS = {
    "alice": {"password": "wonderland", "account": "APP", "publish": ["orders.>"], "hours": 8},
    "bob": {"password": "builder", "account": "REPORTS", "publish": [], "hours": 1},
}


def find_user(connect):
    """Return the user whose name and password a client has shown, None for nobody."""
    user = USERS.get(connect.get("user", ""))
    if user is None or not hmac.compare_digest(user["password"].encode(), connect.get("pass", "").encode()):
        return None
    return user


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claims_of(token):
    """Return the claims of a JWT. Its account is the server's and of the service alone, so nobody else can send one."""
    body = token.split(b".")[1]
    return json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))


def sign(issuer, claims):
    """Return claims as a JWT of the issuer."""
    said = {"iss": issuer.public_key.decode(), "iat": int(time.time()), "jti": base64url(os.urandom(16)), **claims}
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    text = ".".join(base64url(json.dumps(part).encode()) for part in (header, said))
    return f"{text}.{base64url(issuer.sign(text.encode()))}"


def user_jwt(issuer, request, name, user):
    """Return the JWT that places a client: its account is the audience, its key the one of the request."""
    rules = {"pub": {"allow": user["publish"]}, "sub": {"allow": ["_INBOX.>"]}} if user["publish"] else {}
    no_limits = {"subs": -1, "data": -1, "payload": -1}
    return sign(issuer, {
        "sub": request["nats"]["user_nkey"],
        "aud": user["account"],
        "name": name,
        "exp": int(time.time()) + user["hours"] * 3600,
        "nats": {**rules, **no_limits, "type": "user", "version": 2},
    })  # fmt: skip


def response(issuer, request):
    """Return the answer to a request: a user's JWT, or an error for the server's log."""
    asked = request["nats"]
    connect = asked["connect_opts"]
    user = find_user(connect)
    said = {"error": "unknown user or wrong password"}
    if user is not None:
        said = {"jwt": user_jwt(issuer, request, connect["user"], user)}
    said |= {"type": "authorization_response", "version": 2}
    return sign(issuer, {"sub": asked["user_nkey"], "aud": asked["server_id"]["id"], "nats": said})


async def main(url, seed_file):
    issuer = nkeys.from_seed(Path(seed_file).read_bytes().strip())
    connection = await nats.connect(url, user="auth", password="change-me-auth", name="auth callout")

    async def answer(message):
        await message.respond(response(issuer, claims_of(message.data)).encode())

    # In a queue group several services share the requests.
    await connection.subscribe("$SYS.REQ.USER.AUTH", "auth", cb=answer)
    await connection.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
