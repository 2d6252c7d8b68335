"""`natsctl backup`: backups of an account's configuration and data, and commands that read backups without a server."""

from natsctl.cli.framework.verbs import Verb

VERBS = (
    Verb(
        "stream",
        "stream.transfer.backup",
        answer="client.backup.save:SavedStream",
        examples=("natsctl backup stream ORDERS ./orders",),
    ),
    Verb(
        "account",
        "backup.accounts.backup_account",
        answer="client.backup.account_backup:AccountOutcome",
        examples=("natsctl backup account /data/js-backup",),
    ),
    Verb("restore", "backup.accounts.RESTORE_VERBS", "Restore a stream or an account from a backup of its data"),
    Verb(
        "verify, check",
        "backup.archives.verify",
        answer="cli.backup.archives:Verdicts",
        examples=("natsctl backup verify ./saved", "natsctl backup verify ORDERS.tgz -j"),
    ),
    Verb("validate", "backup.archives.validate", examples=("natsctl backup validate ./orders",)),
    Verb(
        "ls, list",
        "backup.archives.ls",
        answer="client.backup.discovery:Found[]",
        examples=("natsctl backup ls /data/js-backup",),
    ),
    Verb(
        "inspect, show",
        "backup.archives.inspect",
        answer="client.backup.discovery:Inspection",
        examples=("natsctl backup inspect ORDERS.tgz",),
    ),
    Verb(
        "info",
        "backup.archives.info",
        answer="client.backup.discovery:BackupInfo",
        examples=("natsctl backup info ./orders --subjects",),
    ),
    Verb(
        "cat, messages",
        "backup.archives.cat",
        answer="StoredMsg*",
        examples=('natsctl backup cat ORDERS.tgz --subject "ORDERS.new" --since 2026-01-31 -j',),
    ),
    Verb(
        "edit, filter",
        "backup.archives.edit",
        answer="client.backup.selection:EditedBackup",
        examples=(
            'natsctl backup edit ORDERS.tgz NEW.tgz --subject "ORDERS.new"',
            "natsctl backup edit ./bucket ./smaller --kv-compact",
            "natsctl backup edit ./orders ./shared --obfuscate",
        ),
    ),
    Verb(
        "lookup",
        "backup.archives.lookup",
        answer="cli.backup.archives:Revealed[]",
        examples=("natsctl backup lookup shared.keys.json 7ll0ps0m2k6j3h1d",),
    ),
)
