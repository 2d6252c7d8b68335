"""Users of nsc's store by URL: `nsc://OPERATOR/ACCOUNT/USER`, with the credentials and the servers to use them with.

Operator, account and user are given by name, in any case, or by public key; `?store=FOLDER&keystore=FOLDER` say where
the store is, else nsc's own configuration does. A user's creds file from nsc is read if it exists;
for other users it is made of the JWT and the seed in the store. Source: nats-io/nsc, cmd/generateprofile.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qs, unquote

from natsctl.api.errors import NatsctlError, StorageError, UsageError
from natsctl.client.auth.nsc_store import NscStore
from natsctl.client.auth.operators import Entity, EntityNotFoundError

SCHEME: Final = "nsc://"

Found = TypeVar("Found", bound=Entity)


class NscProfile(NamedTuple):
    """The text of a user's creds file, and the URLs of the operator's servers."""

    credentials: str
    services: list[str]


def profile_of(url: str, environment: Mapping[str, str]) -> NscProfile:
    """Return the profile of a user; raises UsageError, EntityNotFoundError, StorageError, NatsctlError."""
    path, _, query = url.removeprefix(SCHEME).partition("?")
    parts = [unquote(part) for part in path.split("/")]
    if not url.startswith(SCHEME) or len(parts) != 3 or not all(parts):
        raise UsageError(f"invalid nsc URL {url!r}", hint="it has the form nsc://OPERATOR/ACCOUNT/USER")
    said = {key.lower(): values[-1] for key, values in parse_qs(query).items()}
    place = nsc_store(environment, said.get("store", ""), said.get("keystore", ""))
    operator = place.operator(_name_in(place.names(), parts[0]))
    account = _find(operator.accounts, "account", parts[1], f"operator {operator.name}")
    user = _find(account.users, "user", parts[2], f"account {account.name}")
    kept = place.credentials_path(user)
    try:
        text = kept.read_text(encoding="utf-8") if kept.exists() else user.credentials()
    except (OSError, UnicodeDecodeError) as failure:
        raise StorageError(f"{kept}: {failure}") from failure
    return NscProfile(text, operator.typed.nats.operator_service_urls)


def _name_in(names: Sequence[str], name: str) -> str:
    """Return the name that is equal except for case, else `name`: it may be a public key."""
    return next((one for one in names if one.lower() == name.lower()), name)


def _find(entities: Sequence[Found], kind: str, name: str, place: str) -> Found:
    for entity in entities:
        if entity.is_called(name) or entity.name.lower() == name.lower():
            return entity
    raise EntityNotFoundError(kind, name, [entity.name for entity in entities], place)


def nsc_store(environment: Mapping[str, str], stores: str = "", keys: str = "") -> NscStore:
    """Return the store that nsc uses: as its configuration and NKEYS_PATH say, else that of the `nats` tool."""
    usual = NscStore.of_environment(environment)
    home = Path(environment.get("HOME") or "~").expanduser()
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "nats" / "nsc"
    folder = Path(environment["NSC_HOME"]) if environment.get("NSC_HOME") else config
    configured = "" if stores else _configured(folder / "nsc.json")
    keys = keys or environment.get("NKEYS_PATH", "")
    return NscStore(
        Path(stores or configured).expanduser() if stores or configured else usual.stores,
        Path(keys).expanduser() if keys else usual.keys,
        usual.config,
    )


def _configured(file: Path) -> str:
    """Return the folder of operators in nsc's configuration, "" without one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("store_root")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, AttributeError) as failure:
        raise StorageError(f"{file}: {failure}") from failure
    return found if isinstance(found, str) else ""


def credentials_of(url: str, name: str, environment: Mapping[str, str]) -> str:
    """Return the text of a user's creds file; errors begin with `name`, the setting that has the URL."""
    try:
        return profile_of(url, environment).credentials
    except UsageError as failure:
        failure.args = (f"{name}: {failure.text}",)
        failure.text = failure.args[0]
        raise
    except NatsctlError as failure:
        raise UsageError(f"{name}: {failure.text}", hint=failure.hint) from failure
