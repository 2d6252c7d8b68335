"""The cells of rows: what lists show of an entry, and the titles of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.api.errors import NatsctlError
from natsctl.api.units import format_size
from natsctl.cli.browse import details
from natsctl.cli.browse.row_list import Cells, cut, short, sparkline
from natsctl.cli.render.text import count, local, safe

if TYPE_CHECKING:
    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.cli.browse.catalog import AssetFacts, CatalogSection


def column_titles(content: object, width: int, last_seq: int) -> str:
    match content:
        case "consumers":
            text = f"  {cut('Consumer', width - 30)}{'Pending':>9}{'Unacked':>9}{'Rate/s':>9}"
        case "keys":
            text = f"  {cut('Key', width - 13)}{'Values':>9}"
        case "objects":
            text = f"  {cut('Object', width - 34)}{'Size':>10}  {'Modified':<19}"
        case _:
            sequence, moment = _message_columns(width, last_seq)
            text = f" {'Seq':>{sequence}}  {'Time':<{moment}} Subject"
    return text[:width]


def name_row(section: CatalogSection, name: str, width: int) -> Cells:
    facts, shown = section.facts(name), safe(section.label(name))
    bars = 8 if width >= 40 else 4
    room = max(4, width - bars - 9)
    if facts.fault:
        return ((" ", ""), (cut(shown, room), "dim"), (f" {cut(facts.fault, bars + 7)}", "bad"))
    if not section.has_numbers:
        return ((" ! ", "warn"), (cut(shown, width - 4), "name"))
    if facts.info is None:
        return ((" ", ""), (cut(shown, room), "name"))
    number = section.number_of(facts.info)
    shown_number = format_size(number).replace(" ", "") if section.counts_bytes else short(number)
    return (
        (" ", ""),
        (cut(shown, room), "name"),
        (" " + sparkline(facts.history, bars), "good"),
        (f"{shown_number:>6} ", "dim"),
    )


def consumer_row(name: str, facts: AssetFacts, width: int) -> Cells:
    start = ("  " + cut(safe(name), width - 30), "name")
    if facts.fault or facts.info is None:
        return (start, (f" {facts.fault}", "bad"))
    info = facts.info
    rate = f"{short(facts.rate):>9}"
    unacked = "warn" if 0 < info.config.max_ack_pending <= info.num_ack_pending else ""
    return (start, (f"{info.num_pending:>9,}", ""), (f"{info.num_ack_pending:>9,}", unacked), (rate, "good"))


def key_row(key: str, values: int, width: int) -> Cells:
    return (("  ", ""), (cut(safe(key), width - 13), "name"), (f"{values:>9,}", "dim"))


def object_row(message: ArchivedMessage, width: int) -> Cells:
    from natsctl.client.object_store import to_object

    moment = f"{local(message.ts_ns):%Y-%m-%d %H:%M:%S}"
    try:
        stored = to_object(message.payload, moment, message.seq, "")
    except NatsctlError as failure:
        return ((f"  {failure}", "bad"),)
    size = "deleted" if stored.deleted else format_size(stored.size)
    return (
        ("  ", ""),
        (cut(safe(stored.name), width - 34), "dim" if stored.deleted else "name"),
        (f"{size:>10}", ""),
        (f"  {moment}", "dim"),
    )


def message_row(message: ArchivedMessage, width: int, last_seq: int) -> Cells:
    """Return a message; the stream's last sequence makes the width of the first column."""
    subject = safe(message.subject.decode("utf-8", "backslashreplace"))
    sequence, moment = _message_columns(width, last_seq)
    shown = f"{local(message.ts_ns):%Y-%m-%d %H:%M:%S.%f}"
    room = max(8, width - sequence - moment - 4)
    taken = min(max(len(subject), 8), max(8, room * 2 // 3))
    body = cut(details.message_line(message), max(0, room - taken - 2))
    return (
        (f" {count(message.seq):>{sequence}}  ", "dim"),
        (f"{shown[11:19] if moment < 10 else shown[:23]} ", "dim"),
        (cut(subject, taken), "name"),
        (f"  {body}", ""),
    )


def _message_columns(width: int, last_seq: int) -> tuple[int, int]:
    return max(5, len(count(last_seq))), 8 if width < 70 else 23
