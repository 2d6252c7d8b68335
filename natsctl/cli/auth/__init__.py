"""Operators, accounts and users of decentralised login: `natsctl auth`."""

from typing import TYPE_CHECKING, Final

from natsctl.cli.framework.verbs import Verb, lazy_modules

if TYPE_CHECKING:
    from natsctl.cli.auth import account_settings, mappings, nkeys, operators, roles, sharing, users
else:
    account_settings, mappings, nkeys, operators, roles, sharing, users = lazy_modules(
        "natsctl.cli.auth", "account_settings mappings nkeys operators roles sharing users"
    )

CLAIMS: Final = "natsctl.api.jwt_claims:AccountClaims"

ACCOUNT_VERBS = (
    Verb(
        "add, create, new",
        account_settings.add,
        answer=CLAIMS,
        examples=("natsctl auth account add APP --jetstream --js-disk 10GB --connections 100",),
    ),
    Verb("info, show, view, i", account_settings.info, answer=CLAIMS),
    Verb(
        "edit, update",
        account_settings.edit,
        answer=CLAIMS,
        examples=("natsctl auth account edit APP --connections 200",),
    ),
    Verb("ls, list", account_settings.ls, answer="cli.auth.account_settings:ListedAccount[]"),
    Verb(
        "rm",
        account_settings.rm,
        answer="cli.auth.account_settings:Removed",
        examples=("natsctl auth account rm OLD --force",),
    ),
    Verb(
        "push",
        account_settings.push,
        answer="cli.auth.account_settings:PushedAccount",
        examples=("natsctl auth account push APP --context system",),
    ),
    Verb(
        "query, pull",
        account_settings.query,
        answer=CLAIMS,
        examples=("natsctl auth account query APP app.jwt --context system",),
    ),
    Verb("imports, i, imp, import", sharing.IMPORT_VERBS, "Manage what an account imports from others"),
    Verb("exports, e, exp, export", sharing.EXPORT_VERBS, "Manage what an account exports to others"),
    Verb("keys, sk, s", roles.VERBS, "Manage an account's signing keys, and the roles of those that have one"),
    Verb("mappings, m, mapping, map", mappings.VERBS, "Manage subject mappings of an account"),
)

VERBS = (
    Verb("operator, o, op", operators.VERBS, "Manage operators"),
    Verb("account, a, acct, act", ACCOUNT_VERBS, "Manage accounts"),
    Verb("user, u, usr, users", users.VERBS, "Manage users of accounts"),
    Verb("nkey, nk", nkeys.VERBS, "Make and use nkeys"),
    Verb("nuid", nkeys.NUID_VERBS, "Make NUIDs"),
)
