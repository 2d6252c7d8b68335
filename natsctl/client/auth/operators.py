"""Operators, their accounts and users in memory: made, changed, signed.

Nothing is written: `natsctl.client.auth.nsc_store` loads an operator, and saves it as a whole. Change the claims of an
entity (`claims`, or the part `nats` of them), then call its `sign` to check them and reissue the JWT.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from natsctl.api.errors import ConflictError, ExitCode, UsageError, closest
from natsctl.api.jwt_claims import AccountClaims, OperatorClaims, UserClaims, UserLimits
from natsctl.api.jwt_token import Kind
from natsctl.client.auth import claims as jwt
from natsctl.client.auth.claims import Document
from natsctl.client.auth.keys import KeyPair, generate_key

SYSTEM_ACCOUNT: Final = "SYSTEM"
"""Name of the system account that a new operator gets."""


class EntityNotFoundError(UsageError):
    """An operator, account, user or key that does not exist."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, kind: str, name: str, known: list[str], place: str = "") -> None:
        near = closest(name, known)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}" if known else ""
        super().__init__(f"{kind} {name} not found{f' in {place}' if place else ''}", hint=hint)


class Entity:
    """An operator, account or user: the name of its file, its key, its claims and its JWT."""

    kind: ClassVar[Kind]

    def __init__(self, name: str, key: KeyPair, claims: Document, token: str = "") -> None:
        self.name = name
        self.key = key
        self.claims = claims
        self.token = token
        self.stored_token = token
        """The JWT in the store, "" for an entity that is not there yet."""

    @property
    def subject(self) -> str:
        return self.key.public

    @property
    def issuer(self) -> str:
        """The public key that signed the JWT."""
        return str(self.claims.get("iss", ""))

    @property
    def nats(self) -> Document:
        """The claims of NATS in the JWT, to be read and changed."""
        body: Document = self.claims["nats"]
        return body

    @property
    def tags(self) -> list[str]:
        return list(self.nats.get("tags") or [])

    @property
    def is_modified(self) -> bool:
        return self.token != self.stored_token

    def is_called(self, name: str) -> bool:
        return name in (self.name, self.subject)

    def _sign(self, signer: KeyPair) -> None:
        jwt.check(self.claims)
        self.token, self.claims = jwt.sign(self.claims, signer)


class Operator(Entity):
    """An operator with its signing keys and accounts, and the keys that its store is to gain and lose."""

    kind = "operator"

    def __init__(self, name: str, key: KeyPair, claims: Document, token: str = "") -> None:
        super().__init__(name, key, claims, token)
        self.signing_keys: list[KeyPair] = []
        """Signing keys with known seeds."""
        self.accounts: list[ManagedAccount] = []
        self.removed_accounts: list[ManagedAccount] = []
        self.added_keys: list[KeyPair] = []
        self.removed_keys: list[str] = []

    @property
    def typed(self) -> OperatorClaims:
        return jwt.typed(self.claims, OperatorClaims)

    @property
    def signing_key_names(self) -> list[str]:
        return list(self.nats.get("signing_keys") or [])

    @property
    def system_account(self) -> ManagedAccount | None:
        """The system account, or None if it is missing or not in the store."""
        return next((account for account in self.accounts if account.subject == self.nats.get("system_account")), None)

    def account(self, name: str) -> ManagedAccount:
        """Return an account by name or public key; raises EntityNotFoundError."""
        for one in self.accounts:
            if one.is_called(name):
                return one
        raise EntityNotFoundError("account", name, [one.name for one in self.accounts], f"operator {self.name}")

    def add_account(self, name: str, key: KeyPair | None = None) -> ManagedAccount:
        """Make an account without limits and without JetStream; raises ConflictError."""
        check_name("account", name)
        if any(one.name == name for one in self.accounts):
            raise ConflictError(f"account {name} already exists in operator {self.name}")
        key = key or self.new_key("account")
        account = ManagedAccount(name, key, jwt.new_claims("account", key.public, name), operator=self)
        account.sign()
        self.accounts.append(account)
        return account

    def remove_account(self, name: str) -> ManagedAccount:
        """Remove an account with its users and keys; raises UsageError for the system account."""
        account = self.account(name)
        if account.is_system:
            raise UsageError(f"account {account.name} is the system account of operator {self.name} and cannot go")
        self.accounts.remove(account)
        self.removed_accounts.append(account)
        self.removed_keys += [account.subject, *account.signing_key_names, *(user.subject for user in account.users)]
        return account

    def add_signing_key(self) -> KeyPair:
        """Make a signing key, and sign the operator's JWT."""
        key = self.new_key("operator")
        self.nats["signing_keys"] = [*self.signing_key_names, key.public]
        self.signing_keys.append(key)
        self.sign()
        return key

    def remove_signing_key(self, public: str) -> list[ManagedAccount]:
        """Remove a signing key and sign the operator's JWT; return the accounts that servers no longer trust.

        Raises EntityNotFoundError.
        """
        names = self.signing_key_names
        if public not in names:
            raise EntityNotFoundError("signing key", public, names, f"operator {self.name}")
        jwt.put(self.nats, "signing_keys", [name for name in names if name != public])
        self.signing_keys = [key for key in self.signing_keys if key.public != public]
        self.removed_keys.append(public)
        self.sign()
        return [account for account in self.accounts if account.issuer == public]

    def set_system_account(self, account: ManagedAccount | None) -> None:
        """Set or unset the system account, and sign the operator's JWT."""
        jwt.put(self.nats, "system_account", account.subject if account else "")
        self.sign()

    def sign(self) -> None:
        """Check the claims and reissue the JWT; raises UsageError."""
        self._sign(self.key)

    def new_key(self, kind: Kind) -> KeyPair:
        """Return a new key; it is saved with the operator."""
        key = generate_key(kind)
        self.added_keys.append(key)
        return key

    def issuing_key(self, issuer: str) -> KeyPair:
        """Return the key to sign an account issued by `issuer`, another one if that cannot sign any more.

        Raises UsageError if no key can.
        """
        strict = bool(self.nats.get("strict_signing_key_usage"))
        trusted = [key for key in self.signing_keys if key.public in self.signing_key_names]
        able = [key for key in (*([] if strict else [self.key]), *trusted) if key.is_private]
        if not able:
            raise UsageError(
                f"the store has no private key of operator {self.name} that may sign accounts",
                hint="import the operator with its seeds: natsctl auth operator import",
            )
        return next((key for key in able if key.public == issuer), able[0])


class ManagedAccount(Entity):
    kind = "account"

    def __init__(self, name: str, key: KeyPair, claims: Document, token: str = "", *, operator: Operator) -> None:
        super().__init__(name, key, claims, token)
        self.operator = operator
        self.signing_keys: list[KeyPair] = []
        """Signing keys with known seeds."""
        self.users: list[ManagedUser] = []
        self.removed_users: list[ManagedUser] = []

    @property
    def typed(self) -> AccountClaims:
        return jwt.typed(self.claims, AccountClaims)

    @property
    def is_system(self) -> bool:
        return self.subject == self.operator.nats.get("system_account")

    @property
    def scopes(self) -> dict[str, Document | None]:
        """The public signing keys, each with its scope from the claims or None."""
        found: dict[str, Document | None] = {}
        for signing_key in self.nats.get("signing_keys") or []:
            found[signing_key if isinstance(signing_key, str) else signing_key.get("key", "")] = (
                None if isinstance(signing_key, str) else signing_key
            )
        return found

    @property
    def signing_key_names(self) -> list[str]:
        return list(self.scopes)

    def user(self, name: str) -> ManagedUser:
        """Return a user by name or public key; raises EntityNotFoundError."""
        for one in self.users:
            if one.is_called(name):
                return one
        raise EntityNotFoundError("user", name, [one.name for one in self.users], f"account {self.name}")

    def signing_key(self, name: str) -> str:
        """Return the public signing key of that name or, if exactly one key has it, that role.

        Raises EntityNotFoundError, and UsageError for a role of several keys.
        """
        scopes = self.scopes
        if name in scopes:
            return name
        keys = [key for key, scope in scopes.items() if scope is not None and scope.get("role") == name]
        if len(keys) > 1:
            raise UsageError(f"role {name} has {len(keys)} signing keys: name one of {', '.join(keys)}")
        if not keys:
            known = [*scopes, *(scope["role"] for scope in scopes.values() if scope and scope.get("role"))]
            raise EntityNotFoundError("signing key or role", name, known, f"account {self.name}")
        return keys[0]

    def add_signing_key(self, scope: Document | None = None) -> KeyPair:
        """Make a signing key, and sign the account's JWT; a `scope` (role, template, description) gets the key."""
        key = self.operator.new_key("account")
        if scope is not None:
            scope.update(kind="user_scope", key=key.public)
        held = [*(self.nats.get("signing_keys") or []), key.public if scope is None else scope]
        self.nats["signing_keys"] = sorted(held, key=lambda one: str(one if isinstance(one, str) else one["key"]))
        self.signing_keys.append(key)
        self.sign()
        return key

    def remove_signing_key(self, public: str) -> list[ManagedUser]:
        """Remove a signing key and sign the account's JWT; return the users that servers no longer trust.

        Raises EntityNotFoundError.
        """
        if public not in self.scopes:
            raise EntityNotFoundError("signing key", public, self.signing_key_names, f"account {self.name}")
        held = [
            signing_key
            for signing_key in self.nats["signing_keys"]
            if (signing_key if isinstance(signing_key, str) else signing_key["key"]) != public
        ]
        jwt.put(self.nats, "signing_keys", held)
        self.signing_keys = [key for key in self.signing_keys if key.public != public]
        self.operator.removed_keys.append(public)
        self.sign()
        return [user for user in self.users if user.issuer == public]

    def add_user(self, name: str, signer: str = "") -> ManagedUser:
        """Make a user without limits, signed by the account or by one of its signing keys.

        A user of a scoped signing key has no limits or permissions of its own. Raises ConflictError,
        EntityNotFoundError.
        """
        check_name("user", name)
        if any(one.name == name for one in self.users):
            raise ConflictError(f"user {name} already exists in account {self.name}")
        issuer = self.signing_key(signer) if signer and signer != self.subject else self.subject
        key = self.operator.new_key("user")
        claims = jwt.new_claims("user", key.public, name)
        if self.scopes.get(issuer):
            claims["nats"] = {"pub": {}, "sub": {}, "type": "user", "version": claims["nats"]["version"]}
        user = ManagedUser(name, key, {**claims, "iss": issuer}, account=self)
        user.sign()
        self.users.append(user)
        return user

    def remove_user(self, name: str) -> ManagedUser:
        """Remove a user and its key; raises EntityNotFoundError."""
        user = self.user(name)
        self.users.remove(user)
        self.removed_users.append(user)
        self.operator.removed_keys.append(user.subject)
        return user

    def revoke(self, public: str, at_s: int) -> None:
        """Revoke the JWTs of a user that were issued up to a time, `*` for every user; sign the account's JWT."""
        self.nats["revocations"] = {**(self.nats.get("revocations") or {}), public: at_s}
        self.sign()

    def sign(self) -> None:
        """Check the claims and reissue the JWT, by the same key if the operator still trusts it."""
        self._sign(self.operator.issuing_key(self.issuer))

    def issuing_key(self, issuer: str) -> KeyPair:
        """Return the key of the account of that name; raises UsageError if its seed is not known."""
        for key in (self.key, *self.signing_keys):
            if key.public == issuer and key.is_private:
                return key
        raise UsageError(f"the store has no private key {issuer or self.subject} of account {self.name}")


class ManagedUser(Entity):
    kind = "user"

    def __init__(self, name: str, key: KeyPair, claims: Document, token: str = "", *, account: ManagedAccount) -> None:
        super().__init__(name, key, claims, token)
        self.account = account

    @property
    def typed(self) -> UserClaims:
        return jwt.typed(self.claims, UserClaims)

    @property
    def scope(self) -> Document | None:
        """The scope of the signing key that issued the user, with the user's rules; None without one."""
        return self.account.scopes.get(self.issuer)

    @property
    def effective_limits(self) -> UserLimits:
        """The permissions and limits that servers apply: of the scope, else of the user."""
        signer = self.account.typed.signers().get(self.issuer)
        return self.typed.nats if signer is None else signer.template

    def sign(self) -> None:
        """Check the claims and reissue the JWT with the same key of the account; raises UsageError."""
        jwt.put(self.nats, "issuer_account", "" if self.issuer == self.account.subject else self.account.subject)
        self._sign(self.account.issuing_key(self.issuer))

    def credentials(self, expires_s: int = 0) -> str:
        """Return the text of a creds file, the JWT in it valid up to `expires_s`; raises UsageError without a seed."""
        token = self.token
        if expires_s:
            token, _ = jwt.sign({**self.claims, "exp": expires_s}, self.account.issuing_key(self.issuer))
        return format_credentials(token, self.key)


def format_credentials(token: str, key: KeyPair) -> str:
    """Return the text of a creds file; raises UsageError where the key's seed is not known."""
    line = "*" * 25
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"{line} IMPORTANT {line}\n"
        "NKEY Seed printed below can be used to sign and prove identity.\n"
        "NKEYs are sensitive and should be treated as secrets.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n\n"
        f"{'*' * 61}\n"
    )


def new_operator(name: str, *, signing_key: bool = True) -> Operator:
    """Return a new operator with a system account and, unless asked not to, a signing key."""
    check_name("operator", name)
    key = generate_key("operator")
    operator = Operator(name, key, jwt.new_claims("operator", key.public, name))
    operator.added_keys.append(key)
    if signing_key:
        operator.add_signing_key()
    operator.set_system_account(operator.add_account(SYSTEM_ACCOUNT))
    return operator


def check_name(kind: str, name: str) -> None:
    """Raise UsageError for a name that is no name of a file, or that other tools would read as another one."""
    wrong = (
        name != name.strip() or name in ("", ".", "..") or any(char in "/\\" or not char.isprintable() for char in name)
    )
    if wrong or len(name.encode()) > MAX_NAME_BYTES:
        raise UsageError(
            f"invalid {kind} name {name[:80]!r}",
            hint=f"up to {MAX_NAME_BYTES} bytes, without slashes, control characters and spaces at its ends",
        )


MAX_NAME_BYTES: Final = 200
"""Maximum length of the name of an operator, account or user: with `.jwt` it is a file name."""


def names_of(entities: list[Any]) -> list[str]:
    return sorted(entity.name for entity in entities)
