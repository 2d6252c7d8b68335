"""`natsctl account`: what the account holds and may hold."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb("info, nfo, i", "account.info:info", answer="cli.account.shapes:AccountOverview"),
    Verb("report, rep", "account.report", "Show the account's connections and what they move"),
    Verb(
        "tls",
        "account.tls:tls",
        answer="client.certificates:Certificate[]",
        examples=("natsctl account tls --no-pem --expire-warn 30d",),
    ),
    Verb(
        "backup, snapshot",
        "backup.account:backup",
        answer="cli.backup.shapes:AccountOutcome",
        examples=("natsctl account backup /data/account --parallel 8",),
    ),
    Verb(
        "restore",
        "backup.account:restore",
        answer="cli.backup.shapes:AccountOutcome",
        examples=("natsctl account restore /data/account --on-existing skip",),
    ),
)
