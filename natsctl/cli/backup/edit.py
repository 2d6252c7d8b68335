"""`backup edit`: a new backup of some of the messages of another one, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from natsctl.api.errors import UsageError
from natsctl.cli import output
from natsctl.cli.backup import picking
from natsctl.cli.backup.options import Consumers, ForceReplace, Source
from natsctl.cli.options import Json, Progress, session_of
from natsctl.cli.progress import progress as shown
from natsctl.client.preview import DryRunError

LastPerSubject = Annotated[
    int | None,
    typer.Option("--last-per-subject", metavar="N", help="the newest N of every subject", show_default=False),
]
KvCompact = Annotated[
    bool, typer.Option("--kv-compact", help="of a bucket the latest revision of each key, without removed keys")
]
Renumber = Annotated[bool, typer.Option("--renumber", help="number the messages from 1, and drop all consumers")]


def edit(
    ctx: typer.Context,
    path: Source,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="directory, or a file such as ORDERS.tgz")],
    name: Annotated[str, typer.Option("--name", metavar="STREAM", help="another name", show_default=False)] = "",
    subject: picking.Subjects = None,
    exclude_subject: picking.ExcludeSubjects = None,
    since: picking.Since = None,
    until: picking.Until = None,
    after: picking.After = None,
    before: picking.Before = None,
    seq: picking.Sequences = "",
    first_seq: picking.FirstSeq = None,
    last_seq: picking.LastSeq = None,
    header: picking.Headers = None,
    exclude_header: picking.ExcludeHeaders = None,
    payload_match: picking.Payloads = None,
    exclude_payload_match: picking.ExcludePayloads = None,
    last_per_subject: LastPerSubject = None,
    kv_compact: KvCompact = False,
    renumber: Renumber = False,
    archive: Annotated[
        int, typer.Option("--archive", metavar="1|2", help="format to write: 1 can be read by servers before 2.15")
    ] = 2,
    consumers: Consumers = True,
    force: ForceReplace = False,
    progress: Progress = True,
    json: Json = False,
) -> None:
    """Make a new backup with some messages of another one, under its own or another name, in either format.

    The messages keep their sequences (but for --renumber) and times; the one that is read stays as it is. Needs no
    server.
    """
    from natsctl.client.backup.edit import Edit, edit_backup

    if archive not in (1, 2):
        raise UsageError(f"--archive: expected 1 or 2, not {archive}")
    if last_per_subject is not None and last_per_subject < 1:
        raise UsageError(f"--last-per-subject: expected 1 or more, not {last_per_subject}")
    if last_per_subject and kv_compact:
        raise UsageError("--kv-compact and --last-per-subject are mutually exclusive")
    pick = picking.narrowed(
        picking.read_pick(subject, since, until, seq),
        after=after,
        before=before,
        first_seq=first_seq,
        last_seq=last_seq,
        exclude_subjects=exclude_subject,
        headers=header,
        exclude_headers=exclude_header,
        payloads=payload_match,
        exclude_payloads=exclude_payload_match,
    )
    wanted = Edit(name, pick, last_per_subject or 0, kv_compact, renumber, archive, consumers)
    dry_run = session_of(ctx).dry_run
    with shown("Reading", None, bar=progress, quiet=json) as tracker:
        done = edit_backup(path, target, wanted, replace=force, dry_run=dry_run, on_read=tracker.at)
    if json and dry_run:
        kept = {"target": str(target), "messages": done.messages, "of_messages": done.picked.source_messages}
        raise DryRunError(effect=kept)
    if json:
        from msgspec import to_builtins

        output.emit_json(to_builtins(done))
        return
    from natsctl.cli.render.backup import render_edit
    from natsctl.cli.screen import show_page

    show_page(render_edit(done, dry_run=dry_run))
