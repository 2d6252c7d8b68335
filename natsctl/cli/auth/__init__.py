"""Operators, accounts and users of JWT logins: `natsctl auth`."""

from typing import Final

from natsctl.cli.framework.verbs import Verb, verb

CLAIMS: Final = "natsctl.api.jwt_claims:AccountClaims"

ACCOUNT_VERBS = (
    verb(
        "add, create, new",
        "auth.account_settings.add",
        CLAIMS,
        "natsctl auth account add APP --jetstream --js-disk 10GB --connections 100",
    ),
    verb("info, show, view, i", "auth.account_settings.info", CLAIMS),
    verb("edit, update", "auth.account_settings.edit", CLAIMS, "natsctl auth account edit APP --connections 200"),
    verb("ls, list", "auth.account_settings.ls", "cli.auth.account_settings:ListedAccount[]"),
    verb("rm", "auth.account_settings.rm", "cli.auth.account_settings:Removed", "natsctl auth account rm OLD --force"),
    verb(
        "push",
        "auth.account_settings.push",
        "cli.auth.account_settings:PushedAccount",
        "natsctl auth account push APP --context system",
    ),
    verb(
        "query, pull", "auth.account_settings.query", CLAIMS, "natsctl auth account query APP app.jwt --context system"
    ),
    Verb("imports, i, imp, import", "auth.sharing.IMPORT_VERBS", "Manage the imports of an account"),
    Verb("exports, e, exp, export", "auth.sharing.EXPORT_VERBS", "Manage the exports of an account"),
    Verb("keys, sk, s", "auth.roles.VERBS", "Manage an account's signing keys, and their roles"),
    Verb("mappings, m, mapping, map", "auth.mappings.VERBS", "Manage subject mappings of an account"),
)

VERBS = (
    Verb("operator, o, op", "auth.operators.VERBS", "Manage operators"),
    Verb("account, a, acct, act", ACCOUNT_VERBS, "Manage accounts"),
    Verb("user, u, usr, users", "auth.users.VERBS", "Manage users of accounts"),
    Verb("nkey, nk", "auth.nkeys.VERBS", "Make and use nkeys"),
    Verb("nuid", "auth.nkeys.NUID_VERBS", "Make NUIDs"),
)
