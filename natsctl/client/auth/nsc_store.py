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
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

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

Owned = TypeVar("Owned", bound=Entity)


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
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as failure:
            raise StorageError(f"{path}: {getattr(failure, 'strerror', '') or failure}") from failure
        claims = read_claims(token, kind, str(path))
        if not isinstance(claims.get("sub"), str):
            raise StorageError(f"{path}: the JWT has no subject")
        return claims, token

    def _private_keys(self, names: list[str]) -> list[KeyPair]:
        return [key for key in map(self._key, names) if key.is_private]

    def _key(self, public: str) -> KeyPair:
        """Return a key, with its seed where the store has it; raises StorageError for a file that holds another key."""
        bare = parse_key(public)
        path = self.key_path(public)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return bare
        except (OSError, UnicodeDecodeError) as failure:
            raise StorageError(f"{path}: {getattr(failure, 'strerror', '') or failure}") from failure
        found = parse_key(text, str(path))
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
        try:
            held = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            held = ""
        except (OSError, UnicodeDecodeError) as failure:
            raise StorageError(f"{path}: {getattr(failure, 'strerror', '') or failure}") from failure
        if held != entity.stored_token:
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
