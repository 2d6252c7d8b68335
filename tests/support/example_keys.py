"""The examples of nats.conf that hold keys: made from published seeds, always the same, good for nothing but trying.

python -m tests.support.example_keys examples/configs
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any, Final

import nkeys

from tests.support.operators import (
    NO_ACCOUNT_LIMITS,
    NO_JETSTREAM_LIMITS,
    NO_USER_LIMITS,
    PREFIXES,
    Key,
    Kind,
    encode_jwt,
    format_creds,
)

MADE_AT_S: Final = 1_760_000_000
"""The time of issue in the JWTs."""
_WARNING: Final = (
    "# KEYS FOR TRYING ONLY: every seed of them is published. Made by `python -m tests.support.example_keys`."
)
_OPERATOR: Final = """{warning}
# Accounts, users and permissions are said by JWTs, which an operator signs; this server only trusts the operator.
# With keys of your own: `nsc generate config --mem-resolver`.
listen: 127.0.0.1:4222
jetstream {{ store_dir: /data/jetstream, max_mem: 1G, max_file: 100G }}

operator: {operator}
system_account: {system}
resolver: MEMORY
resolver_preload {{
    # SYS
    {system}: {system_jwt}
    # APP: JetStream up to 1 GiB and 10 streams
    {app}: {app_jwt}
}}
"""
_NKEYS: Final = """{warning}
# Users by public key: the server holds no secret, and each client signs what the server asks it to.
# The seeds of these two are in nkeys-admin.seed and nkeys-sensor.seed.
listen: 127.0.0.1:4222

authorization {{
    users: [
        {{ nkey: {admin} }}
        {{ nkey: {sensor}, permissions: {{ publish: "sensors.>", subscribe: "_INBOX.>" }} }}
    ]
}}
"""
_CALLOUT: Final = """{warning}
# A service decides who may log in, and as what: examples/auth-callout/service.py, which has the issuer's seed.
listen: 127.0.0.1:4222

accounts {{
    # Of the service alone: who is in this account could answer in its place.
    AUTH {{ users: [ {{ user: auth, password: change-me-auth }} ] }}
    APP {{ jetstream: enabled }}
    REPORTS {{}}
}}
jetstream {{ store_dir: /data/jetstream, max_mem: 1G, max_file: 100G }}

authorization {{
    # Time that the service has for an answer.
    timeout: 5
    auth_callout {{
        # The public key of auth-callout-issuer.seed; no account has it.
        issuer: {issuer}
        account: AUTH
        auth_users: [ auth ]
    }}
}}
"""


def example_key(kind: Kind, name: str) -> Key:
    secret = hashlib.sha256(f"natsctl example, not a secret: {kind} {name}".encode()).digest()
    return Key(kind, nkeys.encode_seed(secret, PREFIXES[kind]))


def _jwt(kind: Kind, name: str, signer: Key, **nats: Any) -> str:
    claims = {
        "jti": f"EXAMPLE-ONLY-{kind}-{name}",
        "iat": MADE_AT_S,
        "sub": example_key(kind, name).public,
        "name": name,
        "nats": {**nats, "type": kind, "version": 2},
    }
    return encode_jwt(claims, signer)


def _creds(name: str, account: Key, **nats: Any) -> str:
    return format_creds(_jwt("user", name, account, **NO_USER_LIMITS, **nats), example_key("user", name).seed)


def example_files() -> dict[str, str]:
    operator = example_key("operator", "EXAMPLE-ONLY")
    system, app = example_key("account", "SYS"), example_key("account", "APP")
    limits = {**NO_ACCOUNT_LIMITS, **NO_JETSTREAM_LIMITS, "disk_storage": 1 << 30, "streams": 10}
    conf = _OPERATOR.format(
        warning=_WARNING,
        operator=_jwt("operator", "EXAMPLE-ONLY", operator),
        system=system.public,
        system_jwt=_jwt("account", "SYS", operator, limits=NO_ACCOUNT_LIMITS),
        app=app.public,
        app_jwt=_jwt("account", "APP", operator, limits=limits),
    )
    issuer = example_key("account", "auth-callout-issuer")
    admin, sensor = example_key("user", "nkeys-admin"), example_key("user", "nkeys-sensor")
    return {
        "operator.conf": conf,
        "operator-app.creds": _creds("app", app),
        "operator-reader.creds": _creds("reader", app, pub={"deny": [">"]}, sub={"allow": ["prices.>"]}),
        "operator-system.creds": _creds("system", system),
        "auth-callout.conf": _CALLOUT.format(warning=_WARNING, issuer=issuer.public),
        "auth-callout-issuer.seed": issuer.seed.decode() + "\n",
        "nkeys.conf": _NKEYS.format(warning=_WARNING, admin=admin.public, sensor=sensor.public),
        "nkeys-admin.seed": admin.seed.decode() + "\n",
        "nkeys-sensor.seed": sensor.seed.decode() + "\n",
    }


def main() -> None:
    """Write the files into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    for name, text in example_files().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
