"""The files that nsc and the `nats` tool keep operators, accounts, users and keys in.

    stores/OPERATOR/.nsc                                            what the folder is
    stores/OPERATOR/OPERATOR.jwt
    stores/OPERATOR/accounts/ACCOUNT/ACCOUNT.jwt
    stores/OPERATOR/accounts/ACCOUNT/users/USER.jwt
    keys/keys/KIND/XX/PUBLIC.nk                                     a seed; XX are the key's second and third letters
    keys/creds/OPERATOR/ACCOUNT/USER.creds                          made by nsc only, kept up to date here

Folders have mode 0700 and files 0600. A save writes keys first, then JWTs from the operator down, then removes files
no longer needed: after a crash no JWT lacks its key. Concurrent saves wait for each other (`.natsctl.lock` next to
the folder of the stores), and a JWT that another command has changed since it was read is not overwritten.
Source: nats-io/nsc, cmd/store/store.go and keys.go.

Backups of operators are in the form of `nats auth operator backup`: the JWT and, if known, the seed of the operator
and of each of its accounts, users and signing keys. With a curve key they are sealed for its holder, as base 64.
Source: jwt-auth-builder.go, types.go.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from natsctl.api.errors import ConflictError, StorageError, UsageError, file_errors
from natsctl.client.atomic_file import PRIVATE, FileChange, hold_lock, make_private_folder
from natsctl.client.auth.claims import Document, read_claims
from natsctl.client.auth.keys import KeyPair, parse_key
from natsctl.client.auth.operators import Entity, EntityNotFoundError, ManagedAccount, ManagedUser, Operator, check_name

LOCK_NAME: Final = ".natsctl.lock"
LOCKED_WITHIN_S: Final = 10.0
LOOK_EVERY_S: Final = 0.02
"""Maximum wait for the lock, and the pause between attempts."""
_INFO_FILE: Final = ".nsc"
_ACCOUNTS: Final = "accounts"
_USERS: Final = "users"
_GITIGNORE: Final = "# ignore all nk files\n**/*.nk\n\n# ignore all creds files\n**/*.creds\n"


class NscStore:
    def __init__(self, stores: Path, keys: Path, config: Path) -> None:
        self.stores = stores
        self.keys = keys
        self.config = config

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> NscStore:
        """Return the store that the `nats` tool uses: below XDG_DATA_HOME, else ~/.local/share."""
        home = Path(environment.get("HOME") or "~").expanduser()
        root = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "nats" / "nsc"
        config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "nats" / "cli" / "config.json"
        return cls(root / "stores", root / "keys", config)

    # -- reading

    def names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.stores.iterdir() if (path / _INFO_FILE).is_file())
        except FileNotFoundError:
            return []
        except OSError as failure:
            raise StorageError(f"{self.stores}: {failure.strerror or failure}") from failure

    def operators(self) -> list[Operator]:
        """Return every operator; raises StorageError, NatsctlError."""
        return [self.operator(name) for name in self.names()]

    def account_names(self, operator: str) -> list[str]:
        """Return the names of an operator's accounts without reading JWTs; none if it does not exist."""
        if operator not in self.names():
            return []
        found = _folders(self.stores / operator / _ACCOUNTS)
        return [path.name for path in found if (path / f"{path.name}.jwt").is_file()]

    def user_names(self, operator: str, account: str) -> list[str]:
        """Return the names of an account's users without reading JWTs; none if it does not exist."""
        if account not in self.account_names(operator):
            return []
        return [path.stem for path in _files(self.stores / operator / _ACCOUNTS / account / _USERS)]

    def operator(self, name: str) -> Operator:
        """Return an operator by name or public key; raises EntityNotFoundError, StorageError, NatsctlError."""
        names = self.names()
        if name in names:
            return self._load(name)
        if len(name) > 50 and name.startswith("O"):
            found = next((one for one in map(self._load, names) if one.subject == name), None)
            if found is not None:
                return found
        raise EntityNotFoundError("operator", name, names)

    def selected(self) -> str:
        """Return the name of the operator that the user has selected, "" without one that exists."""
        name = self._configured().get("select_operator")
        return name if isinstance(name, str) and name in self.names() else ""

    def selecting(self, name: str) -> FileChange:
        """Return the change that selects an operator in the configuration of the `nats` tool, the rest of it kept."""
        text = json.dumps({**self._configured(), "select_operator": name}, separators=(",", ":"), ensure_ascii=False)
        return FileChange(self.config, text)

    def _configured(self) -> dict[str, object]:
        try:
            found = json.loads(self.config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as failure:
            raise StorageError(f"{self.config}: {failure}") from failure
        return found if isinstance(found, dict) else {}

    def _load(self, name: str) -> Operator:
        folder = self.stores / name
        stem = self._stem(folder, name)
        claims, token = self._claims(folder / f"{stem}.jwt", "operator")
        operator = Operator(stem, self._key(claims["sub"]), claims, token)
        operator.signing_keys = self._private_keys(operator.signing_key_names)
        for path in _folders(folder / _ACCOUNTS):
            if (path / f"{path.name}.jwt").is_file():
                operator.accounts.append(self._load_account(path, operator))
        return operator

    def _stem(self, folder: Path, name: str) -> str:
        """Return the operator's name in the store's own file; it names the file of its JWT."""
        try:
            info = json.loads((folder / _INFO_FILE).read_text(encoding="utf-8"))
            stem = info.get("name") or name
            check_name("operator", stem)
        except (OSError, ValueError, AttributeError, TypeError, UsageError) as failure:
            raise StorageError(f"{folder / _INFO_FILE}: {failure}") from failure
        return str(stem)

    def _load_account(self, folder: Path, operator: Operator) -> ManagedAccount:
        claims, token = self._claims(folder / f"{folder.name}.jwt", "account")
        account = ManagedAccount(folder.name, self._key(claims["sub"]), claims, token, operator=operator)
        account.signing_keys = self._private_keys(account.signing_key_names)
        for path in _files(folder / _USERS):
            said, user_token = self._claims(path, "user")
            account.users.append(ManagedUser(path.stem, self._key(said["sub"]), said, user_token, account=account))
        return account

    def _claims(self, path: Path, kind: str) -> tuple[Document, str]:
        token = _text(path).strip()
        claims = read_claims(token, kind, str(path))
        if not isinstance(claims.get("sub"), str):
            raise StorageError(f"{path}: the JWT has no subject")
        return claims, token

    def _private_keys(self, names: list[str]) -> list[KeyPair]:
        return [key for key in map(self._key, names) if key.is_private]

    def _key(self, public: str) -> KeyPair:
        """Return a key, with its seed where the store has it; raises StorageError for a file that holds another key."""
        parse_key(public)
        path = self.key_path(public)
        found = parse_key(_text(path, missing=public), str(path))
        if found.public != public:
            raise StorageError(f"{path}: the seed belongs to another key")
        return found

    # -- places

    def key_path(self, public: str) -> Path:
        return self.keys / "keys" / public[:1] / public[1:3] / f"{public}.nk"

    def credentials_path(self, user: ManagedUser) -> Path:
        account = user.account
        return self.keys / "creds" / account.operator.name / account.name / f"{user.name}.creds"

    def jwt_path(self, entity: Entity) -> Path:
        if isinstance(entity, ManagedUser):
            return self._account_folder(entity.account) / _USERS / f"{entity.name}.jwt"
        if isinstance(entity, ManagedAccount):
            return self._account_folder(entity) / f"{entity.name}.jwt"
        return self.stores / entity.name / f"{entity.name}.jwt"

    def _account_folder(self, account: ManagedAccount) -> Path:
        return self.stores / account.operator.name / _ACCOUNTS / account.name

    # -- writing

    def changes(self, operator: Operator) -> list[FileChange]:
        """Return the changes of a save, in order; raises ConflictError."""
        found = [FileChange(self.key_path(key.public), key.seed) for key in operator.added_keys if self._is_new(key)]
        if found and not (self.keys / ".gitignore").exists():
            found.insert(0, FileChange(self.keys / ".gitignore", _GITIGNORE))
        if not operator.stored_token:
            folder = self.stores / operator.name
            if folder.exists() and any(folder.iterdir()):
                raise ConflictError(f"operator {operator.name} already exists in {self.stores}")
            info = {"managed": False, "name": operator.name, "kind": "operator", "version": "1"}
            found.append(FileChange(folder / _INFO_FILE, json.dumps(info, separators=(",", ":"))))
        for entity in _entities(operator):
            if entity.is_modified:
                self._check_unchanged(entity)
                found.append(FileChange(self.jwt_path(entity), entity.token))
                if isinstance(entity, ManagedUser) and entity.key.is_private and self.credentials_path(entity).exists():
                    found.append(FileChange(self.credentials_path(entity), entity.credentials()))
        return found + list(self._removals(operator))

    def _is_new(self, key: KeyPair) -> bool:
        return key.is_private and not self.key_path(key.public).exists()

    def _check_unchanged(self, entity: Entity) -> None:
        path = self.jwt_path(entity)
        if _text(path, missing="").strip() != entity.stored_token:
            raise ConflictError(f"{path} was changed by another command meanwhile; nothing was written")

    def _removals(self, operator: Operator) -> Iterator[FileChange]:
        accounts = [(account, account.removed_users) for account in operator.accounts]
        accounts += [(account, [*account.users, *account.removed_users]) for account in operator.removed_accounts]
        for account, users in accounts:
            for user in users:
                if user.stored_token:
                    yield FileChange(self.jwt_path(user), None)
                    if self.credentials_path(user).exists():  # it has the private key, too
                        yield FileChange(self.credentials_path(user), None)
            if account in operator.removed_accounts:
                yield FileChange(self.jwt_path(account), None)
        for public in operator.removed_keys:
            if self.key_path(public).exists():
                yield FileChange(self.key_path(public), None)

    def save(self, operator: Operator) -> list[FileChange]:
        """Write the changes and return them; raises ConflictError, StorageError."""
        with self._locked():
            done = self.changes(operator)
            for change in done:
                self.apply(change)
            if not operator.stored_token:
                make_private_folder(self.stores / operator.name / _ACCOUNTS)
        for entity in _entities(operator):
            entity.stored_token = entity.token
        for account in operator.accounts:
            account.removed_users.clear()
        for pending in (operator.added_keys, operator.removed_keys, operator.removed_accounts):
            pending.clear()
        return done

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the store so that other natsctls wait; no lock if its folder is not the user's.

        Raises StorageError.
        """
        path = self.stores.parent / LOCK_NAME
        try:
            make_private_folder(path.parent)
            lock = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
        except PermissionError:
            yield
            return
        except OSError as failure:
            raise StorageError(f"{path}: {failure.strerror or failure}") from failure
        try:
            until_s = time.monotonic() + LOCKED_WITHIN_S
            while not _is_held(lock):
                if time.monotonic() > until_s:
                    raise StorageError(f"{path}: another natsctl has held it for {LOCKED_WITHIN_S:g}s")
                time.sleep(LOOK_EVERY_S)
            yield
        finally:
            os.close(lock)

    def apply(self, change: FileChange) -> None:
        """Write or remove one file; raises StorageError."""
        with file_errors(change.path):
            change.apply()
            if change.text is None:
                _remove_empty_folders(change.path.parent, (self.stores, self.keys))


def _text(path: Path, *, missing: str | None = None) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        if missing is not None and isinstance(failure, FileNotFoundError):
            return missing
        raise StorageError(f"{path}: {getattr(failure, 'strerror', '') or failure}") from failure


def _is_held(lock: int) -> bool:
    try:
        hold_lock(lock)
    except OSError:
        return False
    return True


def _entities(operator: Operator) -> Iterator[Entity]:
    yield operator
    for account in operator.accounts:
        yield account
        yield from account.users


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.jwt"), key=lambda path: path.stem) if place.is_dir() else []


def _remove_empty_folders(folder: Path, ends: tuple[Path, ...]) -> None:
    """Remove a folder that has become empty, and those above it, up to the roots and the folder of all accounts."""
    while folder not in ends and folder.name != _ACCOUNTS and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def backup_of(operator: Operator, key: KeyPair | None = None) -> bytes:
    """Return the backup of an operator, sealed if there is a curve key."""
    accounts = [
        {**_saved(account, account.signing_keys), "users": [_saved(user) for user in account.users]}
        for account in operator.accounts
    ]
    document = {**_saved(operator, operator.signing_keys), "accounts": accounts}
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    return text if key is None else base64.b64encode(key.seal(text, key.public))


def _saved(entity: Entity, signing_keys: Iterable[KeyPair] | None = None) -> Document:
    found: Document = {"name": entity.name, "key": _seed(entity.key), "token": entity.token}
    if signing_keys is not None:
        found["signingKeys"] = [_seed(key) for key in signing_keys]
    return found


def _seed(key: KeyPair) -> Document:
    return {"key": key.seed if key.is_private else ""}


def restored(content: bytes, origin: str, key: KeyPair | None = None) -> Operator:
    """Return the operator of a backup (sealed for `key`, if given), with everything in it to be saved.

    Raises UsageError that names `origin`, NatsctlError and NatsctlError.
    """
    document = _document(_opened(content, origin, key), origin)
    operator: Operator = _entity(Operator, document, f"{origin}: $", [])
    operator.signing_keys = _keys(operator, document, f"{origin}: $")
    for at, one in enumerate(_list(document, "accounts", origin)):
        place = f"{origin}: $.accounts[{at}]"
        account = _entity(ManagedAccount, one, place, operator.accounts, operator=operator)
        account.signing_keys = _keys(operator, one, place)
        operator.accounts.append(account)
        for index, user in enumerate(_list(one, "users", place)):
            account.users.append(_entity(ManagedUser, user, f"{place}.users[{index}]", account.users, account=account))
    entities: list[Entity] = [operator, *operator.accounts, *(one for each in operator.accounts for one in each.users)]
    operator.added_keys += [entity.key for entity in entities if entity.key.is_private]
    return operator


def _opened(content: bytes, origin: str, key: KeyPair | None) -> bytes:
    if key is None:
        return content
    try:
        sealed = base64.b64decode(content.strip(), validate=True)
    except binascii.Error:
        raise UsageError(f"{origin}: this is not a sealed backup", hint="without --key it is read as it is") from None
    return key.open(sealed, key.public)


def _document(text: bytes, origin: str) -> Document:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as failure:
        raise UsageError(f"{origin}: {failure}", hint="a sealed backup needs --key") from None
    if not isinstance(found, dict):
        raise UsageError(f"{origin}: expected an object, got {type(found).__name__}")
    return found


def _list(document: Document, name: str, place: str) -> list[Document]:
    found = document.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{place}.{name}: expected a list of objects")
    return found


def _entity(kind: type[Any], document: Document, place: str, others: Iterable[Entity], **owner: Any) -> Any:
    """Return the operator, account or user of a part of a backup, as one that is not in the store."""
    name, token = document.get("name"), document.get("token")
    if not isinstance(name, str) or not isinstance(token, str):
        raise UsageError(f"{place}: expected the texts name and token")
    check_name(kind.kind, name)
    if any(one.name == name for one in others):
        raise UsageError(f"{place}: there are two of the name {name}")
    claims = read_claims(token, kind.kind, place)
    found = kind(name, _key(document.get("key"), f"{place}.key", claims.get("sub")), claims, token, **owner)
    found.stored_token = ""
    return found


def _key(document: Any, place: str, public: Any) -> KeyPair:
    bare = parse_key(str(public), place)
    seed = document.get("key") if isinstance(document, dict) else None
    if not seed:
        return bare
    found = parse_key(str(seed), place)
    if found.public != bare.public:
        raise UsageError(f"{place}: the seed does not belong to {bare.public}")
    return found


def _keys(operator: Operator, document: Document, place: str) -> list[KeyPair]:
    seeds = [one.get("key") for one in _list(document, "signingKeys", place)]
    keys = [parse_key(str(seed), f"{place}.signingKeys", "operator", "account") for seed in seeds if seed]
    operator.added_keys += keys
    return keys


# -- import


def imported(token: str, origin: str, keys: Iterable[KeyPair]) -> Operator:
    """Return the operator of a JWT with all its keys; raises UsageError, NatsctlError."""
    claims = read_claims(token, "operator", origin)
    name = claims.get("name")
    check_name("operator", name if isinstance(name, str) else "")
    wanted = [claims["sub"], *(claims["nats"].get("signing_keys") or [])]
    given = {key.public: key for key in keys if key.is_private}
    if others := [public for public in given if public not in wanted]:
        raise UsageError(f"operator {name} has no key {others[0]}", hint=f"its keys are {', '.join(wanted)}")
    if missing := [public for public in wanted if public not in given]:
        raise UsageError(f"the seed of {missing[0]} is missing", hint="give the files of all keys of the operator")
    operator = Operator(str(name), given[wanted[0]], claims, token.strip())
    operator.stored_token = ""
    operator.signing_keys = [given[public] for public in wanted[1:]]
    operator.added_keys = [given[public] for public in wanted]
    return operator
