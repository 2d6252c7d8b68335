"""The examples of nats.conf that hold keys: made from published seeds, always the same, good for nothing but trying.

python -m tests.support.example_keys examples/configs
"""

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


def _conf(name: str, **keys: str) -> str:
    return (Path(__file__).parent / "example_confs" / f"{name}.conf").read_text().format(warning=_WARNING, **keys)


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
    conf = _conf(
        "operator",
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
        "auth-callout.conf": _conf("auth-callout", issuer=issuer.public),
        "auth-callout-issuer.seed": issuer.seed.decode() + "\n",
        "nkeys.conf": _conf("nkeys", admin=admin.public, sensor=sensor.public),
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
