"""Object buckets and objects as pages and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from natsctl.api.units import format_size, plural
from natsctl.cli.render.page import Page
from natsctl.cli.render.stream import render_cluster, render_metadata
from natsctl.cli.render.table import render_table
from natsctl.cli.render.values import age_limit, ago, count, listed, safe, size_limit, when, yes
from natsctl.cli.render.watched import event_text
from natsctl.client.buckets import OBJECTS
from natsctl.client.objects.bucket import digest_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from natsctl.api.answers import StreamInfoAnswer
    from natsctl.api.stream import StreamInfo
    from natsctl.client.objects.bucket import Object


def render_bucket(info: StreamInfoAnswer) -> Page:
    """Everything there is to know about a bucket."""
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
    section.row("JetStream Stream", safe(config.name))
    section.row("Storage", config.storage.value.capitalize())
    if config.placement is not None:
        section.maybe("Placement Cluster", safe(config.placement.cluster))
        section.maybe("Placement Tags", listed(config.placement.tags))
    render_metadata(page, config.metadata)
    render_cluster(page, info.cluster)
    return page


def render_object(found: Object) -> Page:
    """What is known of an object."""
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
    """Headers one by one; some clients store lists of values, others one value."""
    lists = {key: value if isinstance(value, list) else [value] for key, value in headers.items()}
    return [(str(key), str(one)) for key, values in lists.items() for one in values]


def _digest(found: Object) -> str:
    known = digest_bytes(found.digest)
    return f"SHA-256 {known.hex()}" if known else safe(found.digest)


def _link(link: dict[str, str]) -> str:
    name = link.get("name")
    return f"object {safe(link['bucket'])} > {safe(name)}" if name else f"bucket {safe(link['bucket'])}"


def render_buckets(infos: Iterable[StreamInfo], now_ns: int) -> Table:
    """The table of `object ls`, smallest bucket first."""
    rows = [
        (
            OBJECTS.bucket_of(info.config.name),
            info.config.description,
            when(info.created),
            format_size(info.state.bytes),
            ago(info.state.last_ts, now_ns),
        )
        for info in sorted(infos, key=lambda info: (info.state.bytes, info.config.name))
    ]
    columns = ("Bucket", "Description", "Created", "Size", "Last Update")
    return render_table("Object Store Buckets", columns, rows, columns[3:], least=("Created", "Description"))


def render_objects(bucket: str, found: Sequence[Object]) -> Table:
    """The table of `object ls BUCKET`."""
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


def render_event(found: Object, width: int | None, *, coloured: bool) -> str:
    """One event of `object watch`: a line, or with a `width` in columns as many as it takes."""
    done = "DEL" if found.deleted else "PUT"
    text = f"[{when(found.time)}] {done} {safe(found.bucket)} > {safe(found.name)}"
    if not found.deleted:
        stored = f"{format_size(found.size)} in {plural(found.chunks, 'chunk')}"
        held = f"link to {_link(found.link)}" if found.link is not None else ""
        text += f": {held or stored}"
    return event_text(text, done, width, deleted=found.deleted, coloured=coloured)
