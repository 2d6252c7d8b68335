"""`natsctl backup`: backups of an account's configuration and data, and commands that read backups without a server."""

from natsctl.cli.framework.verbs import Verb, verb

VERBS = (
    verb("stream", "stream.transfer.backup", "client.backup.save:SavedStream", "natsctl backup stream ORDERS ./orders"),
    verb(
        "account",
        "backup.accounts.backup_account",
        "client.backup.account_backup:AccountOutcome",
        "natsctl backup account /data/js-backup",
    ),
    Verb("restore", "backup.accounts.RESTORE_VERBS", "Restore a stream or an account from a backup of its data"),
    verb(
        "verify, check",
        "backup.archives.verify",
        "cli.backup.archives:Verdicts",
        "natsctl backup verify ./saved",
        "natsctl backup verify ORDERS.tgz -j",
    ),
    verb("validate", "backup.archives.validate", "", "natsctl backup validate ./orders"),
    verb("ls, list", "backup.archives.ls", "client.backup.discovery:Found[]", "natsctl backup ls /data/js-backup"),
    verb(
        "inspect, show",
        "backup.archives.inspect",
        "client.backup.discovery:Inspection",
        "natsctl backup inspect ORDERS.tgz",
    ),
    verb(
        "info", "backup.archives.info", "client.backup.discovery:BackupInfo", "natsctl backup info ./orders --subjects"
    ),
    verb(
        "cat, messages",
        "backup.archives.cat",
        "StoredMsg*",
        'natsctl backup cat ORDERS.tgz --subject "ORDERS.new" --since 2026-01-31 -j',
    ),
    verb(
        "edit, filter",
        "backup.archives.edit",
        "client.backup.selection:EditedBackup",
        'natsctl backup edit ORDERS.tgz NEW.tgz --subject "ORDERS.new"',
        "natsctl backup edit ./bucket ./smaller --kv-compact",
        "natsctl backup edit ./orders ./shared --obfuscate",
    ),
    verb(
        "lookup",
        "backup.archives.lookup",
        "cli.backup.archives:Revealed[]",
        "natsctl backup lookup shared.keys.json 7ll0ps0m2k6j3h1d",
    ),
)
