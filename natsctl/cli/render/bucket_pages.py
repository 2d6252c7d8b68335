"""Key-value buckets, object buckets and their contents as pages, tables and lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from natsctl.api.units import format_size, plural
from natsctl.cli.render.page import Page, Section
from natsctl.cli.render.streams import render_cluster, render_metadata, render_placement
from natsctl.cli.render.tables import Table, render_table
from natsctl.cli.render.text import age_limit, ago, count, duration, hanging, safe, size_limit, when, yes
from natsctl.client.buckets import DEL, KV, OBJECTS, BucketKind, Entry
from natsctl.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.api.stream import StreamConfig, StreamInfo, StreamSourceInfo
    from natsctl.client.object_store import StoredObject


_GREEN, _RED, _OFF = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def event_text(text: str, operation: str, width: int | None, *, deleted: bool, coloured: bool) -> str:
    """Return `[TIME] OPERATION …`, wrapped at `width` columns, with the operation in its colour."""
    shown = hanging(text, width)
    if not coloured:
        return shown
    time, bracket, rest = shown.partition("] ")
    return f"{time}{bracket}{rest.replace(operation, f'{_RED if deleted else _GREEN}{operation}{_OFF}', 1)}"


MAX_VALUE_SHOWN = 40
"""Characters of a value in a table; longer ones lose their middle."""


def render_bucket(kind: BucketKind, info: StreamInfoAnswer) -> Page:
    return render_kv_bucket(info) if kind is KV else render_object_bucket(info)


def render_buckets(kind: BucketKind, infos: Iterable[StreamInfo], now_ns: int) -> Table:
    columns = ("Bucket", "Description", "Created", "Size", *(("Values",) if kind is KV else ()), "Last Update")
    rows = [
        (
            kind.bucket_of(info.config.name),
            info.config.description,
            when(info.created),
            format_size(info.state.bytes),
            *((count(info.state.messages),) if kind is KV else ()),
            ago(info.state.last_ts, now_ns),
        )
        for info in sorted(infos, key=lambda info: (info.state.bytes, info.config.name))
    ]
    title = "Key-Value Buckets" if kind is KV else "Object Store Buckets"
    return render_table(title, columns, rows, columns[3:], least=("Created", "Description"))


def render_kv_bucket(info: StreamInfoAnswer) -> Page:
    config, state = info.config, info.state
    page = Page(
        f"Information for Key-Value Store Bucket {safe(KV.bucket_of(config.name))} created {when(info.created)}"
    )
    section = page.section("Configuration")
    section.row("Bucket Name", safe(KV.bucket_of(config.name)))
    section.maybe("Description", safe(config.description))
    section.row("History Kept", count(config.max_msgs_per_subject))
    section.row("Values Stored", count(state.messages))
    section.row("Keys", count(state.num_subjects))
    section.row("Compressed", yes(config.compression.value != "none"))
    section.row("Per-Key TTL Supported", yes(config.allow_msg_ttl))
    if config.subject_delete_marker_ttl:
        section.row("Limit Marker TTL", duration(config.subject_delete_marker_ttl))
    section.row("Bucket Size", format_size(state.bytes))
    section.row("Maximum Bucket Size", size_limit(config.max_bytes))
    section.row("Maximum Value Size", size_limit(config.max_msg_size))
    section.row("Maximum Age", age_limit(config.max_age))
    section.row("Last Update", when(state.last_ts))
    _backing(section, config)
    section.row("Replicas", count(config.num_replicas))
    section.maybe("Sealed", "true" if config.sealed else "")
    render_placement(section, config)
    if config.republish is not None:
        label = "Republishing Headers" if config.republish.headers_only else "Republishing"
        section.row(label, f"{safe(config.republish.src or '>')} to {safe(config.republish.dest)}")
    render_metadata(page, config.metadata)
    _origins(page, info)
    render_cluster(page, info.cluster)
    return page


def _backing(section: Section, config: StreamConfig) -> None:
    section.row("Backing Store Kind", "JetStream")
    section.row("JetStream Stream", safe(config.name))
    section.row("Storage", config.storage.value.capitalize())


def _origins(page: Page, info: StreamInfoAnswer) -> None:
    if info.config.mirror is not None:
        _origin(page.section("Mirror Information"), "Origin Bucket", info.config.mirror.name, info.mirror)
    states = {one.name: one for one in info.sources or ()}
    for source in info.config.sources or ():
        _origin(page.section("Source Information"), "Source Bucket", source.name, states.get(source.name))


def _origin(section: Section, label: str, name: str, state: StreamSourceInfo | None) -> None:
    section.row(label, safe(KV.bucket_of(name)))
    if state is None:
        return
    if state.external is not None:
        section.maybe("External API", safe(state.external.api))
    section.row("Last Seen", "never" if state.active < 0 else f"{duration(state.active)} ago")
    section.row("Lag", count(state.lag))
    if state.error is not None:
        section.row("Error", f"{safe(state.error.description)} ({state.error.err_code})")


def render_keys(bucket: str, found: Sequence[Entry], *, values: bool) -> Table:
    columns = ["Key", "Created", "Revision", "Length", *(["Value"] if values else [])]
    rows = [
        (
            entry.key,
            when(entry.created),
            count(entry.revision),
            count(entry.length),
            *([shown_value(entry.value)] if values else []),
        )
        for entry in found
    ]
    return render_table(
        f"Contents for bucket {bucket}", columns, rows, ("Revision", "Length"), least=("Length", "Created")
    )


def render_history(bucket: str, key: str, found: Sequence[Entry]) -> Table:
    rows = [
        (
            entry.key,
            count(entry.revision),
            entry.operation,
            when(entry.created),
            count(entry.length),
            "" if entry.deleted else shown_value(entry.value),
        )
        for entry in found
    ]
    columns = ("Key", "Revision", "Op", "Created", "Length", "Value")
    return render_table(f"History for {bucket} > {key}", columns, rows, ("Revision", "Length"), least=("Key", "Length"))


def render_heading(entry: Entry) -> str:
    place = f"{entry.bucket} > {entry.key} revision: {entry.revision} created @ {when(entry.created)}"
    if not entry.ttl_ns:
        return safe(place)
    return safe(f"{place} time to live: {'unlimited' if entry.ttl_ns < 0 else duration(entry.ttl_ns)}")


def render_revert(old: Entry, now: Entry | None) -> str:
    """Return the change by a revert: the key's value before and after."""
    held = "(none)" if now is None or now.deleted else shown_value(now.value)
    return f"{safe(old.bucket)} > {safe(old.key)}: {held} → {shown_value(old.value)} (revision {old.revision})"


def render_kv_event(entry: Entry, width: int | None, *, coloured: bool) -> str:
    """Return one event of `kv watch`: a line, or with a `width` in columns as many as it takes."""
    done = "DELETE" if entry.operation == DEL else entry.operation
    place = f"[{when(entry.created)}] {done} {safe(entry.bucket)} > {safe(entry.key)}"
    text = place if entry.deleted else f"{place}: {_text(entry.value or b'')}"
    return event_text(text, done, width, deleted=entry.deleted, coloured=coloured)


def shown_value(value: bytes | None) -> str:
    """Return a value in one cell: text if it is UTF-8, else base64; a long one is cut in the middle."""
    text = _text(value or b"")
    if len(text) <= MAX_VALUE_SHOWN:
        return text
    side = (MAX_VALUE_SHOWN - 1) // 2
    return f"{text[:side]}…{text[-side:]}"


def _text(value: bytes) -> str:
    try:
        return safe(value.decode())
    except UnicodeDecodeError:
        import base64

        return base64.b64encode(value).decode()


def render_object_bucket(info: StreamInfoAnswer) -> Page:
    config, state = info.config, info.state
    name = safe(OBJECTS.bucket_of(config.name))
    page = Page(f"Information for Object Store Bucket {name} created {when(info.created)}")
    section = page.section("Configuration")
    section.row("Bucket Name", name)
    section.maybe("Description", safe(config.description))
    section.row("Replicas", count(config.num_replicas))
    section.row("TTL", age_limit(config.max_age))
    section.row("Sealed", yes(config.sealed))
    section.row("Compressed", yes(config.compression.value != "none"))
    section.row("Size", format_size(state.bytes))
    section.row("Maximum Bucket Size", size_limit(config.max_bytes))
    section.row("Last Update", when(state.last_ts))
    _backing(section, config)
    render_placement(section, config)
    render_metadata(page, config.metadata)
    render_cluster(page, info.cluster)
    return page


def render_object(found: StoredObject) -> Page:
    page = Page(f"Object information for {safe(found.bucket)} > {safe(found.name)}")
    section = page.section()
    section.maybe("Description", safe(str(found.raw.get("description") or "")))
    if found.link is not None:
        section.row("Link To", _link(found.link))
    else:
        section.row("Size", f"{format_size(found.size)} ({plural(found.size, 'byte')})")
        section.row("Chunks", count(found.chunks))
        section.row("Digest", _digest(found))
    section.row("Modification Time", when(found.time) if found.time else "now")
    section.maybe("Deleted", "true" if found.deleted else "")
    headers = found.raw.get("headers") or {}
    section.many("Headers", [f"{safe(key)}: {safe(value)}" for key, value in _pairs(headers)])
    metadata = found.raw.get("metadata") or {}
    render_metadata(page, {str(key): str(value) for key, value in metadata.items()})
    return page


def _pairs(headers: dict[str, object]) -> list[tuple[str, str]]:
    """Yield headers one by one; some clients store lists of values, others one value."""
    lists = {key: value if isinstance(value, list) else [value] for key, value in headers.items()}
    return [(str(key), str(one)) for key, values in lists.items() for one in values]


def _digest(found: StoredObject) -> str:
    from natsctl.client.object_store import digest_bytes

    known = digest_bytes(found.digest)
    return f"SHA-256 {known.hex()}" if known else safe(found.digest)


def _link(link: dict[str, str]) -> str:
    name = link.get("name")
    return f"object {safe(link['bucket'])} > {safe(name)}" if name else f"bucket {safe(link['bucket'])}"


def render_objects(bucket: str, found: Sequence[StoredObject]) -> Table:
    rows = [
        (
            one.name,
            format_size(one.size) if one.link is None else "link",
            when(one.time),
            str(one.raw.get("description") or "") if one.link is None else f"to {_link(one.link)}",
        )
        for one in found
    ]
    return render_table(
        f"Contents for bucket {bucket}",
        ("Name", "Size", "Time", "Description"),
        rows,
        ("Size",),
        least=("Description",),
    )


def render_object_event(found: StoredObject, width: int | None, *, coloured: bool) -> str:
    """Return one event of `object watch`: a line, or with a `width` in columns as many as it takes."""
    done = "DEL" if found.deleted else "PUT"
    text = f"[{when(found.time)}] {done} {safe(found.bucket)} > {safe(found.name)}"
    if not found.deleted:
        stored = f"{format_size(found.size)} in {plural(found.chunks, 'chunk')}"
        held = f"link to {_link(found.link)}" if found.link is not None else ""
        text += f": {held or stored}"
    return event_text(text, done, width, deleted=found.deleted, coloured=coloured)
