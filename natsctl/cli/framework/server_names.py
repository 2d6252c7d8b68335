"""Names of assets on a server, for completion: a few requests at most, and no names if there is no server."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from natsctl.cli.framework.name_cache import NameCache
from natsctl.cli.framework.resolve import is_internal
from natsctl.client.buckets import KV, OBJECTS, BucketKind
from natsctl.client.one_shot import OneShotClient, open_one_shot

if TYPE_CHECKING:
    from natsctl.cli.framework.candidates import TypedLine


MAX_PAGES = 16
"""Pages of names that are read; for more the user types a few letters."""
MAX_STREAMS_ASKED = 4
"""Maximum streams with subjects looked up for one argument."""
MAX_WORDS = 500


def names_of(kind: str, line: TypedLine, current: str, deadline_s: float) -> list[str]:
    from natsctl.cli.framework.globals import GlobalOptions
    from natsctl.client.servers import resolve

    options = GlobalOptions(**line.options)
    target = resolve(options.settings(), os.environ, options.context, no_context=options.no_context)
    cache = NameCache(target, os.environ)
    query = json.dumps([kind, line.value("STREAM"), line.value("BUCKET"), _scope(current)])
    partial = f"{query} {current}"
    kept = cache.names(query) or cache.names(partial)
    if kept and (found := _beginning(kept, current)):
        return found  # without a match the server is asked, as the name may be new
    server = open_one_shot(target, deadline_s)
    if server is None:
        return []
    try:
        read: list[str] = []
        matches = 0
        for name in _READERS[kind](server, line, current):
            if not name.isprintable():
                continue
            read.append(name)
            matches += name.startswith(current)
            if matches > 2 * MAX_WORDS:  # some subjects are stored and configured
                query = partial
                break
    finally:
        server.shut()
    cache.keep(query, read)
    return _beginning(read, current)


def _beginning(names: list[str], current: str) -> list[str]:
    return list(dict.fromkeys(name for name in names if name.startswith(current)))[:MAX_WORDS]


def _scope(current: str) -> tuple[str, bool, bool]:
    """Return the part of the typed argument that the requests for names depend on."""
    return _filter(current), is_internal(current), current.startswith("$")


def _pages(server: OneShotClient, verb: str, key: str, body: dict[str, Any] | None = None) -> Iterator[str]:
    offset = 0
    for _ in range(MAX_PAGES):
        page = server.ask(verb, {**(body or {}), "offset": offset})
        yield from page.get(key) or ()
        offset += int(page.get("limit") or 0)
        if not page.get("limit") or offset >= int(page.get("total") or 0):
            return


def _streams(server: OneShotClient, line: TypedLine, current: str) -> Iterator[str]:
    for name in _pages(server, "STREAM.NAMES", "streams"):
        if is_internal(current) or not is_internal(name):
            yield name


def _buckets_of(server: OneShotClient, kind: BucketKind) -> Iterator[str]:
    """Yield the buckets of a kind; not looked up by subject, as mirrors have no subjects of their own."""
    return (kind.bucket_of(name) for name in _pages(server, "STREAM.NAMES", "streams") if kind.is_mine(name))


def _keys(server: OneShotClient, line: TypedLine, current: str) -> Iterator[str]:
    # A mirror's subjects begin with the name of its origin.
    found = _subjects_in(server, f"{KV.prefix}{line.value('BUCKET')}", _filter(f"$KV.*.{current}"))
    return (subject.split(".", 2)[2] for subject in found)


def _objects(server: OneShotClient, line: TypedLine, current: str) -> Iterator[str]:
    bucket = line.value("BUCKET")
    prefix = f"$O.{bucket}.M."
    for subject in _subjects_in(server, OBJECTS.prefix + bucket, prefix + ">"):
        try:
            yield base64.urlsafe_b64decode(subject.removeprefix(prefix)).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue


def _subjects(server: OneShotClient, line: TypedLine, current: str) -> Iterator[str]:
    wanted = _filter(current)
    stream = line.value("STREAM")
    names = [stream] if stream else list(_pages(server, "STREAM.NAMES", "streams", {"subject": wanted}))
    for name in names[:MAX_STREAMS_ASKED]:
        if is_internal(name) and not current.startswith("$"):
            continue
        answer = server.ask(f"STREAM.INFO.{name}", {"subjects_filter": wanted})
        yield from answer["config"].get("subjects") or ()
        yield from sorted(answer["state"].get("subjects") or {})


def _subjects_in(server: OneShotClient, stream: str, wanted: str) -> list[str]:
    return sorted(server.ask(f"STREAM.INFO.{stream}", {"subjects_filter": wanted})["state"].get("subjects") or {})


def _filter(current: str) -> str:
    """Return the filter of all subjects that begin with the complete tokens of the word."""
    whole = current.rpartition(".")[0]
    return f"{whole}.>" if whole else ">"


_READERS: dict[str, Callable[[OneShotClient, TypedLine, str], Iterator[str]]] = {
    "stream": _streams,
    "consumer": lambda server, line, _: (
        _pages(server, f"CONSUMER.NAMES.{stream}", "consumers") if (stream := line.value("STREAM")) else iter(())
    ),
    "template": lambda server, *_: _pages(server, "STREAM.TEMPLATE.NAMES", "streams"),
    "bucket": lambda server, *_: _buckets_of(server, KV),
    "store": lambda server, *_: _buckets_of(server, OBJECTS),
    "key": _keys,
    "object": _objects,
    "subject": _subjects,
}
