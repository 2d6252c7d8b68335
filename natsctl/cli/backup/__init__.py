"""`natsctl backup`: everything of an account as files, and looks into backups without a server."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "stream",
        "stream.transfer:backup",
        answer="cli.backup.shapes:SavedStream",
        examples=("natsctl backup stream ORDERS ./orders",),
    ),
    Verb(
        "account",
        "backup.account:backup",
        answer="cli.backup.shapes:AccountOutcome",
        examples=("natsctl backup account /data/js-backup",),
    ),
    Verb("restore", "backup.restore", "Restore a stream or an account from a backup of its data"),
    Verb(
        "verify, check",
        "backup.verify:verify",
        answer="cli.backup.shapes:Verdicts",
        examples=("natsctl backup verify ./saved", "natsctl backup verify ORDERS.tgz -j"),
    ),
    Verb("validate", "backup.verify:validate", examples=("natsctl backup validate ./orders",)),
    Verb(
        "ls, list",
        "backup.ls:ls",
        answer="cli.backup.shapes:Found[]",
        examples=("natsctl backup ls /data/js-backup",),
    ),
    Verb(
        "inspect, show",
        "backup.inspect:inspect",
        answer="cli.backup.shapes:Inspection",
        examples=("natsctl backup inspect ORDERS.tgz",),
    ),
    Verb(
        "info",
        "backup.inspect:info",
        answer="cli.backup.shapes:BackupInfo",
        examples=("natsctl backup info ./orders --subjects",),
    ),
    Verb(
        "cat, messages",
        "backup.cat:cat",
        answer="StoredMsg*",
        examples=('natsctl backup cat ORDERS.tgz --subject "ORDERS.new" --since 2026-01-31 -j',),
    ),
    Verb(
        "edit, filter",
        "backup.edit:edit",
        answer="cli.backup.shapes:EditedBackup",
        examples=(
            'natsctl backup edit ORDERS.tgz NEW.tgz --subject "ORDERS.new"',
            "natsctl backup edit ./bucket ./smaller --kv-compact",
        ),
    ),
)
