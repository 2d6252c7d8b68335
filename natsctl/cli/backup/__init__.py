"""`natsctl backup`: everything of an account as files, and looks into backups without a server."""

from natsctl.cli.verbs import Verb

VERBS = (
    Verb(
        "stream",
        "stream.transfer:backup",
        answer="cli.backup.answers:SavedStream",
        examples=("natsctl backup stream ORDERS ./orders",),
    ),
    Verb(
        "account",
        "backup.accounts:backup_account",
        answer="cli.backup.answers:AccountOutcome",
        examples=("natsctl backup account /data/js-backup",),
    ),
    Verb("restore", "backup.accounts:RESTORE_VERBS", "Restore a stream or an account from a backup of its data"),
    Verb(
        "verify, check",
        "backup.archives:verify",
        answer="cli.backup.answers:Verdicts",
        examples=("natsctl backup verify ./saved", "natsctl backup verify ORDERS.tgz -j"),
    ),
    Verb("validate", "backup.archives:validate", examples=("natsctl backup validate ./orders",)),
    Verb(
        "ls, list",
        "backup.archives:ls",
        answer="cli.backup.answers:Found[]",
        examples=("natsctl backup ls /data/js-backup",),
    ),
    Verb(
        "inspect, show",
        "backup.archives:inspect",
        answer="cli.backup.answers:Inspection",
        examples=("natsctl backup inspect ORDERS.tgz",),
    ),
    Verb(
        "info",
        "backup.archives:info",
        answer="cli.backup.answers:BackupInfo",
        examples=("natsctl backup info ./orders --subjects",),
    ),
    Verb(
        "cat, messages",
        "backup.archives:cat",
        answer="StoredMsg*",
        examples=('natsctl backup cat ORDERS.tgz --subject "ORDERS.new" --since 2026-01-31 -j',),
    ),
    Verb(
        "edit, filter",
        "backup.archives:edit",
        answer="cli.backup.answers:EditedBackup",
        examples=(
            'natsctl backup edit ORDERS.tgz NEW.tgz --subject "ORDERS.new"',
            "natsctl backup edit ./bucket ./smaller --kv-compact",
        ),
    ),
)
