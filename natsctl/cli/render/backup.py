"""Tables, pages and lines about backups: lists, checks, content, and the outcome of a transfer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from natsctl.api.units import format_size, plural
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import count, duration, listed, safe, when, yes

if TYPE_CHECKING:
    from natsctl.client.backup.account_backup import AccountOutcome, StreamOutcome
    from natsctl.client.backup.discovery import BackupInfo, Found, Inspection, Verdict
    from natsctl.client.backup.manifest import Manifest
    from natsctl.client.backup.selection import EditedBackup
    from natsctl.client.migration.migration_state import MigrationReport


def render_found(found: Sequence[Found]) -> Table:
    columns = ("Path", "Form", "Stream", "Messages", "Size", "Created")
    top = _common([one.path for one in found])
    rows = [(_below(top, one.path), *_found_row(one)) for one in found]
    right, least = ("Messages", "Size"), ("Form", "Created")
    return render_table(_backups_in(top), columns, rows, right, least=least)


def _common(paths: Sequence[str]) -> str:
    """Return the common folder of several paths, "" for a single path or no path."""
    folders = [Path(path).parent for path in paths]
    one_root = len({folder.is_absolute() for folder in folders}) == 1
    return os.path.commonpath(folders) if len(paths) > 1 and one_root else ""


def _below(top: str, path: str) -> str:
    return os.path.relpath(path, top) if top else path


def _backups_in(top: str) -> str:
    return f"Backups in {top}" if top else "Backups"


def _found_row(one: Found) -> tuple[str, ...]:
    if one.error:
        return "unreadable", one.error, "", "", ""
    kind = f"{one.kind.replace('_', ' ')} {one.form}" if not one.archive else f"{one.form}, v{one.archive}"
    messages = count(one.messages) if one.archive else ""
    return kind, one.stream, messages, format_size(one.size), when(one.created) if one.created else ""


def render_verdicts(verdicts: Sequence[Verdict]) -> Table:
    if len(verdicts) == 1:
        only = verdicts[0]
        rows = [(check.name, "ok" if check.ok else "WRONG", check.detail) for check in only.checks]
        return render_table(only.path, ("Check", "", "Found"), rows)
    top = _common([verdict.path for verdict in verdicts])
    checked = [(_below(top, verdict.path), *_verdict_row(verdict)) for verdict in verdicts]
    # In the backup of an account each folder has the name of its stream.
    if all(path == stream for path, stream, *_ in checked):
        checked = [("", *row[1:]) for row in checked]
    columns = ("Path", "Stream", "Archive", "", "Found")
    return render_table(_backups_in(top), columns, checked, least=("Archive",))


def _verdict_row(verdict: Verdict) -> tuple[str, str, str, str]:
    wrong = [check.detail for check in verdict.checks if not check.ok]
    last = verdict.checks[-1].detail if verdict.checks else ""
    archive = f"v{verdict.archive}" if verdict.archive else ""
    return verdict.stream, archive, "WRONG" if wrong else "ok", "; ".join(wrong) or last


def render_verdicts_line(verdicts: Sequence[Verdict], missing: Sequence[str]) -> str:
    wrong = sum(not verdict.whole for verdict in verdicts)
    if wrong or missing:
        absent = f", {count(len(missing))} missing" if missing else ""
        return f"{count(wrong)} of {count(len(verdicts))} backups are not complete{absent}"
    return "the backup is complete" if len(verdicts) == 1 else f"all {count(len(verdicts))} backups are complete"


def render_complete(verdict: Verdict) -> str:
    """Return one line about a complete backup, worded as by the `nats` tool: nouns are plural after 1 too."""
    records = verdict.messages + verdict.consumers + 2  # and the state at the start, and the end mark
    parts = [("entries", records), ("consumers", verdict.consumers), ("messages", verdict.messages)]
    said = [f"{count(number)} {noun}" for noun, number in (*parts, ("subjects", verdict.subjects))]
    seqs = f"sequences {count(verdict.first_seq)} to {count(verdict.last_seq)}" if verdict.messages else "no messages"
    return f"OK: {', '.join([*said, seqs])}"


def render_outcome(done: AccountOutcome) -> Table:
    columns = ("Stream", "Result", "Messages", "Size", "Archive", "Remark")
    return render_table("Streams", columns, map(_outcome_row, done.streams), columns[2:5], least=("Archive",))


def _outcome_row(one: StreamOutcome) -> tuple[str, ...]:
    remark = one.error or "; ".join(one.warnings)
    if one.action == "failed":
        return one.stream, one.action, "", "", "", remark
    archive = format_size(one.archive_bytes) if one.archive_bytes else ""
    return one.stream, one.action, count(one.messages), format_size(one.bytes), archive, remark


def render_outcome_line(what: str, done: AccountOutcome) -> str:
    skipped = sum(stream.action == "skipped" for stream in done.streams)
    good = len(done.streams) - len(done.failed) - skipped
    archives = format_size(sum(stream.archive_bytes for stream in done.streams))
    line = f"{what} of {plural(good, 'stream')}, {archives} of archives, in {duration(done.elapsed)}"
    if skipped and skipped == len(done.streams):
        line = "Nothing was restored"
    if skipped:
        line += f"; {plural(skipped, 'stream')} skipped, as {'it exists' if skipped == 1 else 'they exist'} already"
    if done.failed:
        line += f"; {count(len(done.failed))} failed: {', '.join(safe(one.stream) for one in done.failed)}"
    return "\n".join([*map(safe, done.warnings), line])


def render_inspection(found: Inspection) -> Page:
    import msgspec

    from natsctl.api.stream import StreamInfo
    from natsctl.cli.render.streams import render_stream

    info = msgspec.convert({"config": found.config, "state": found.state}, StreamInfo)
    page = Page(f"Backup of Stream {safe(info.config.name)} in {safe(found.path)}")
    section = page.section("Backup")
    section.row("Form", found.form)
    section.row("Archive", f"version {found.archive}, {format_size(found.size)}")
    section.row("Messages", count(found.messages))
    section.row("Payload", format_size(found.payload_bytes))
    if found.manifest is not None:
        _manifest(page.section("Manifest"), found.manifest)
    page.sections += render_stream(info).sections
    _consumers(page.section("Consumers"), found)
    _subjects(page.section("Subjects"), found)
    return page


def _manifest(section: Section, manifest: Manifest) -> None:
    section.row("Created", when(manifest.created))
    section.row("Made By", safe(f"{manifest.tool} by {manifest.method}"))
    server = " ".join(word for word in (manifest.server.name, manifest.server.version) if word)
    section.maybe("Server", safe(server))
    section.maybe("Cluster", safe(manifest.server.cluster))
    section.row("Consumers Saved", "true" if manifest.consumers else "false")
    section.many(
        "Files", [f"{safe(file.name)} {format_size(file.bytes)} {safe(file.sha256)}" for file in manifest.files]
    )


def _consumers(section: Section, found: Inspection) -> None:
    for consumer in found.consumers:
        waits = f", {count(consumer.pending)} waiting for acks" if consumer.pending else ""
        section.row(
            safe(consumer.name), f"delivered {count(consumer.delivered)}, ack floor {count(consumer.ack_floor)}{waits}"
        )


def _subjects(section: Section, found: Inspection) -> None:
    for subject in found.subjects:
        section.row(safe(subject.subject), count(subject.messages))
    if found.other_messages:
        others = found.number_of_subjects - len(found.subjects)
        section.row("others", f"{count(found.other_messages)} on {plural(others, 'subject')}")


def render_info(found: BackupInfo, path: str) -> Page:
    import msgspec

    from natsctl.api.stream import StreamConfig
    from natsctl.cli.render.streams import RETENTION, render_limits

    config = msgspec.convert(found.config, StreamConfig)
    page = Page(f"Information for backup of Stream {safe(config.name)} in {safe(path)}")
    section = page.section("Configuration")
    section.row("Name", safe(config.name))
    section.maybe("Subjects", listed(config.subjects))
    section.row("Storage", config.storage.value.capitalize())
    section.row("Retention", RETENTION.get(config.retention.value, config.retention.value))
    section.row("Replicas", count(config.num_replicas))
    render_limits(section, config)
    section = page.section("Consumers")
    section.row("Count", count(len(found.consumers)))
    section.maybe("Names", listed(found.consumers))
    section = page.section("Messages")
    section.row("Messages", count(found.messages))
    section.row("Bytes", format_size(found.bytes))
    if found.messages:
        section.row("First Sequence", f"{count(found.first_seq)} @ {when(found.first_time)}")
        section.row("Last Sequence", f"{count(found.last_seq)} @ {when(found.last_time)}")
    section.row("Subjects", count(found.num_subjects))
    _declared(page, found)
    _origin(page, found)
    return page


def _declared(page: Page, found: BackupInfo) -> None:
    advisory = " (message and byte counts are advisory)" if found.declared_counts_advisory else ""
    section = page.section(f"Declared State{advisory}")
    section.row("Messages", count(int(found.declared.get("messages") or 0)))
    section.row("Bytes", format_size(int(found.declared.get("bytes") or 0)))
    section.row("First Sequence", count(int(found.declared.get("first_seq") or 0)))
    section.row("Last Sequence", count(int(found.declared.get("last_seq") or 0)))
    section.row("Consumers", count(int(found.declared.get("consumer_count") or 0)))


def _origin(page: Page, found: BackupInfo) -> None:
    if found.edit is not None:
        section = page.section("Edit")
        section.maybe("Tool Version", safe(found.edit.version))
        section.row("Options", listed(found.edit.options) or "none")
        section.row("Source Digest", safe(found.edit.source_digest))
        section.row("Obfuscated", yes(found.edit.obfuscated))
    if found.source is not None:
        section = page.section("Source")
        section.maybe("Subjects", listed(found.source.subjects))
        section.maybe("Stream", safe(found.source.stream))
        section.row("Started", when(found.source.started))
        section.row("Ended", when(found.source.ended))
        section.row("Dropped", count(found.source.dropped))


_DROPPED = {
    "sequence": "Sequence Filter",
    "time": "Time Filter",
    "subject": "Subject Filter",
    "header": "Header Filter",
    "payload": "Payload Filter",
    "last_per_subject": "Last Per Subject",
    "kv_compact": "KV Compaction",
}


def render_edit(done: EditedBackup, *, dry_run: bool) -> Page:
    page = Page("Dry Run, Nothing Was Written" if dry_run else "Backup Edit Report")
    section = page.section()
    section.row("Stream", safe(done.stream))
    section.row("Target", safe(done.target))
    picked = done.picked
    section.row("Source Messages", count(picked.source_messages))
    section.row("Source Subjects", count(picked.source_subjects))
    section.row("Messages Kept", count(picked.kept))
    section.row("Subjects Kept", count(picked.kept_subjects))
    for name, words in _DROPPED.items():
        if dropped := getattr(picked.dropped, name):
            section.row(f"Dropped by {words}", count(dropped))
    section.row("Consumers Kept", count(done.consumers))
    section.row("Consumers Dropped", count(done.consumers_dropped))
    if picked.tombstones_dropped:
        section.row("KV Tombstones Removed by Content Filters", count(picked.tombstones_dropped))
    if picked.subject_state_keys:
        section.row("Subject State Keys", count(picked.subject_state_keys))
    section.many("Warning", [safe(text) for text in done.warnings])
    section = page.section()
    section.row("Restored Messages", count(done.messages))
    section.row("Restored Bytes", format_size(done.bytes))
    section.row("Restored First Sequence", count(done.first_seq))
    section.row("Restored Last Sequence", count(done.last_seq))
    section.row("Restored Consumers", count(done.consumers))
    if done.obfuscation is not None:
        section = page.section()
        section.row("Obfuscated Tokens", count(done.obfuscation.tokens_mapped))
        section.row("Message Bodies Padded", count(done.obfuscation.bodies_padded))
        section.maybe("Key File", safe(done.obfuscation.key_file))
    return page


def render_migration(report: MigrationReport) -> Table:
    columns = ("Stream", "Messages", "Size", "First", "Last", "Consumers", "Unacked", "Replicas", "Checksum")
    rows = [
        (
            stream.stream,
            count(stream.messages),
            format_size(stream.bytes),
            count(stream.first_seq),
            count(stream.last_seq),
            count(stream.consumers),
            count(stream.pending),
            count(stream.replicas),
            stream.sha256[:12] or (f"{count(stream.behind)} behind" if stream.behind else ""),
        )
        for stream in report.streams
    ]
    right = ("Messages", "Size", "First", "Last", "Consumers", "Unacked", "Replicas")
    title = f"Streams {report.action} from {report.origin} to {report.destination}"
    return render_table(title, columns, rows, right, least=("Checksum", "Replicas"))
