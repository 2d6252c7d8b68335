"""Documents about backups that `-j` prints: those of natsctl.client.backup, under the names that schemas show."""

from __future__ import annotations

from natsctl.client.backup.account_backup import AccountOutcome
from natsctl.client.backup.discovery import BackupInfo, Found, Inspection
from natsctl.client.backup.manifest import Document
from natsctl.client.backup.save import SavedStream
from natsctl.client.backup.selection import EditedBackup
from natsctl.client.backup.verify import Verdict


class ConfigurationBackup(Document):
    """What was saved to or restored from a folder of configuration files, by name; consumers as `STREAM > CONSUMER`."""

    folder: str
    streams: list[str]
    consumers: list[str]
    templates: list[str]
    data: list[str]


class Verdicts(Document):
    """Whether all backups at a path are whole; `missing` tells of streams that are not there."""

    whole: bool
    backups: list[Verdict]
    missing: list[str]


__all__ = [
    "AccountOutcome",
    "BackupInfo",
    "ConfigurationBackup",
    "EditedBackup",
    "Found",
    "Inspection",
    "SavedStream",
    "Verdicts",
]
