"""Documents in their forms, read from files into one set."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from natsctl.api.consumer import ConsumerConfig
from natsctl.api.documents import REPORTED, did_you_mean, expanded, has_references, is_json, read_json, read_yaml
from natsctl.api.errors import UsageError
from natsctl.api.locations import (
    MAX_FILES,
    MAX_INCLUDE_DEPTH,
    DocumentNode,
    LocatedDict,
    LocatedList,
    Location,
    Step,
    TextError,
    spelled,
)
from natsctl.api.stream import StreamConfig
from natsctl.client.buckets import OBJECTS
from natsctl.desired.assets import Fault, Kind
from natsctl.desired.documents.asset_documents import (
    IGNORE,
    Read,
    ignore_list,
    is_bucket_info,
    known_anywhere,
    read_bucket,
    read_consumer,
    read_stream,
)
from natsctl.desired.documents.bucket_fields import KeyValueWords, ObjectStoreWords
from natsctl.desired.documents.collector import Collector, items
from natsctl.desired.documents.controller import read_manifest
from natsctl.desired.documents.files import (
    OUTSIDE_HINT,
    STDIN,
    FileId,
    files_at,
    identity,
    is_inside,
    read_text,
    root_of,
)

READERS: Final[dict[Kind, Read]] = {
    Kind.STREAM: read_stream,
    Kind.CONSUMER: read_consumer,
    Kind.KEY_VALUE: read_bucket,
    Kind.OBJECT_STORE: read_bucket,
}
COLLECTIONS: Final = {
    "streams": Kind.STREAM,
    "consumers": Kind.CONSUMER,
    "key_values": Kind.KEY_VALUE,
    "kv": Kind.KEY_VALUE,
    "object_stores": Kind.OBJECT_STORE,
    "objects": Kind.OBJECT_STORE,
}
"""Keys of a plain document, and the kinds that they list."""
SETTINGS: Final = ("owner", "include", IGNORE)
NAMES: Final = {Kind.STREAM: "name", Kind.CONSUMER: "name", Kind.KEY_VALUE: "bucket", Kind.OBJECT_STORE: "bucket"}
"""The name of each kind in a mapping by name."""
_LISTING: Final = ("type", "total", "offset", "limit", "missing", "offline")
"""Keys of an API answer other than its streams or consumers."""
_SAVED_PLAN: Final = frozenset(("format", "changes", "hash"))
KEY_VALUE_ONLY: Final = frozenset(KeyValueWords.__struct_encode_fields__) - frozenset(
    ObjectStoreWords.__struct_encode_fields__
)
CONSUMER_ONLY: Final = frozenset(ConsumerConfig.__struct_encode_fields__) - frozenset(
    StreamConfig.__struct_encode_fields__
)


def read_form(node: DocumentNode, found: Collector) -> Iterator[DocumentNode]:
    """Add the assets of a document to `found`; yield the paths that it includes."""
    if isinstance(node.value, LocatedList):
        for index in range(len(node.value)):
            yield from read_form(node.at(index), found)
        return
    if not isinstance(node.value, LocatedDict):
        if node.value not in (None, REPORTED):
            what = " (only a name: print the configuration with info -j)" if isinstance(node.value, str) else ""
            found.fault(node, _NO_DOCUMENT + what)
        return
    value = node.value
    if node.file.endswith(".tf.json"):
        found.fault(node, "this is a Terraform configuration: natsctl convert terraform makes a document of it")
    elif not value:
        found.fault(node, f"the document is empty: {_NO_DOCUMENT}")
    elif singular := next((key for key in _SINGULAR if isinstance(value.get(key), LocatedDict | LocatedList)), ""):
        found.fault(node.at(singular), f"unknown key, did you mean {_SINGULAR[singular]}?")
    elif isinstance(value.get("apiVersion"), str):
        yield from read_manifest(node, found, lambda item: read_form(item, found))
    elif isinstance(value.get("kind"), str):
        _typed(node, found)
    elif value.keys() >= _SAVED_PLAN:
        found.fault(node, "this is a saved plan, natsctl apply --plan FILE carries it out")
    elif any(key in value for key in (*COLLECTIONS, *SETTINGS)) and not _is_bare(value):
        yield from _plain(node, found)
    elif any(key in _naming() or did_you_mean(key, _naming()) for key in (*value, *_config(value))):
        _bare(node, found)
    else:
        found.fault(node, _NO_DOCUMENT)  # it may be any file: its keys are not repeated


_SINGULAR: Final = {name.removesuffix("s"): name for name in COLLECTIONS if name.endswith("s")}
"""Misspelled keys of a plain document; a text below `stream:` names the stream of a consumer."""
_NO_DOCUMENT: Final = "expected a document: streams:, consumers: …, kind:, or a configuration"


def _naming() -> frozenset[str]:
    """Return the keys that identify a mapping as a configuration."""
    return known_anywhere() | {"name", "bucket", "stream", "stream_name", "durable_name"}


def _config(value: LocatedDict) -> LocatedDict:
    """Return the configuration in what `info -j` prints, or the value if it is one."""
    config = value.get("config")
    return config if isinstance(config, LocatedDict) else value


def _is_bare(value: LocatedDict) -> bool:
    return isinstance(value.get("name"), str) or isinstance(value.get("config"), LocatedDict)


def _typed(node: DocumentNode, found: Collector) -> None:
    """Read `kind: Stream` with its configuration next to it or below `spec`."""
    kind = next((kind for kind in Kind if kind.lower() == node.value["kind"].lower()), None)
    if kind is None:
        known = did_you_mean(node.value["kind"], [kind.lower() for kind in Kind])
        found.fault(node.at("kind"), f"expected Stream, Consumer, KeyValue or ObjectStore{known}")
        return
    _owner(node.at("owner"), found)
    inner = node.holding(node.value.without("kind", "owner"))
    if isinstance(inner.value.get("spec"), LocatedDict):
        for key in inner.value:
            if key != "spec":
                found.fault(inner.at(key), "must be inside spec")
        inner = inner.at("spec")
    READERS[kind](inner, kind, found)


def _plain(node: DocumentNode, found: Collector) -> Iterator[DocumentNode]:
    """Read `streams:`, `consumers:` and the others, lists or mappings by name."""
    listing = str(node.value.get("type", "")).startswith("io.nats.")
    ignored = found.ignored = _ignored(node.at(IGNORE), found)
    for key in node.value:
        inner = node.at(key)
        if key in COLLECTIONS:
            for item in items(inner, NAMES[COLLECTIONS[key]], found):
                READERS[COLLECTIONS[key]](item, COLLECTIONS[key], found)
        elif key == "owner":
            _owner(inner, found)
        elif key == "include":
            for path in _includes(inner, found):
                found.ignored = frozenset()
                yield path
                found.ignored = ignored
        elif key != IGNORE and not (listing and key in _LISTING):
            found.fault(inner, f"unknown key{did_you_mean(key, (*COLLECTIONS, *SETTINGS))}")
    found.ignored = frozenset()


def _ignored(node: DocumentNode, found: Collector) -> frozenset[str]:
    """Return the fields that a document ignores in all of its assets."""
    known, named = known_anywhere(), set()
    for one in ignore_list(node, found):
        if one.value.partition(".")[0] not in known:
            found.fault(one, f"{one.value} is no field of a stream, consumer or bucket{did_you_mean(one.value, known)}")
        named.add(str(one.value))
    return frozenset(named)


def _owner(node: DocumentNode, found: Collector) -> None:
    if not isinstance(node.value, str) or not node.value:
        if node.value not in (None, REPORTED):
            found.fault(node, "expected the name of an owner")
        return
    found.owners.append((str(node.value), node.place))


def _includes(node: DocumentNode, found: Collector) -> Iterator[DocumentNode]:
    paths = [node.at(index) for index in range(len(node.value))] if isinstance(node.value, LocatedList) else [node]
    for path in paths:
        if isinstance(path.value, str) and path.value:
            yield path
        elif path.value is not REPORTED:
            found.fault(path, "expected the path of a file or folder")


def _bare(node: DocumentNode, found: Collector) -> None:
    """Read a configuration, or the output of `info -j`, by its keys."""
    kind = _bare_kind(node.value)
    if kind is None:
        found.fault(node, "the kind of bucket is missing: add kind: KeyValue or kind: ObjectStore")
    elif kind is Kind.CONSUMER:
        read_consumer(node, kind, found, plain=False)
    else:
        READERS[kind](node, kind, found)


def _bare_kind(value: LocatedDict) -> Kind | None:
    """Return the kind that a value describes by its keys, None for a bucket that may be of both kinds."""
    if is_bucket_info(value):
        return Kind.OBJECT_STORE if str(value.get("stream", "")).startswith(OBJECTS.prefix) else Kind.KEY_VALUE
    if "bucket" in value:
        return Kind.KEY_VALUE if KEY_VALUE_ONLY & value.keys() else None
    config = _config(value)
    is_consumer = "stream" in value or "stream_name" in value or bool(CONSUMER_ONLY & config.keys())
    return Kind.CONSUMER if is_consumer else Kind.STREAM


class Loader:
    """Loader that reads each file once, in the order of arguments and includes.

    Includes, and links in a folder, lead to files below the folder of the path that the user named, unless
    `outside` allows more: documents come from pull requests, the paths on the command line do not.
    """

    def __init__(self, values: Mapping[str, str], *, outside: bool = False) -> None:
        self.found = Collector()
        self._values = values
        self._outside = outside
        self._root = "/"
        self._seen: set[FileId] = set()

    def read(self, paths: Sequence[str]) -> None:
        """Read the documents of paths. Raises UsageError for one that does not exist."""
        for path in paths:
            self._root = "/" if self._outside else root_of(path)
            for file in files_at(path, self._root):
                if (own := identity(file)) not in self._seen:
                    self._file(file, (own,))

    def _file(self, file: str, chain: tuple[FileId, ...]) -> None:
        """Read a file; `chain` is the chain of includes that led to it, itself last."""
        self._seen.add(chain[-1])
        name = "stdin" if file == STDIN else file
        self.found.files.append(name)
        if len(self._seen) > MAX_FILES:
            raise UsageError(f"{name}: more than {MAX_FILES:,} files")
        for node in self._documents(file, name):
            for include in read_form(node, self.found):
                self._include(include, file, chain)

    def read_text(self, text: str, name: str) -> None:
        """Read a text without a file; its includes are relative to the working folder."""
        self._root = "/" if self._outside else root_of(STDIN)
        self.found.files.append(name)
        for node in self._documents(STDIN, name, text):
            for include in read_form(node, self.found):
                self._include(include, STDIN, ())

    def _documents(self, file: str, name: str, text: str | None = None) -> Iterator[DocumentNode]:
        """Yield the documents of a file, one by one; unreadable ones are faults."""

        def report(line: int, path: Sequence[Step], reason: str) -> None:
            self.found.faults.append(Fault(Location(name, line, "$" + "".join(spelled(step) for step in path)), reason))

        try:
            text = read_text(file) if text is None else text
            expand = self._expand if has_references(text) else None
            reader = read_json if is_json(file, text) else read_yaml
            for line, value in reader(text, report, expand):
                if value is not None:
                    yield DocumentNode(name, value, getattr(value, "line", line))
        except TextError as fault:
            report(fault.line, (), fault.reason)

    def _expand(self, text: str) -> str:
        return expanded(text, self._values)

    def _include(self, node: DocumentNode, file: str, chain: tuple[FileId, ...]) -> None:
        """Read the files of an include, relative to the file that includes it."""
        if len(chain) > MAX_INCLUDE_DEPTH:
            self.found.fault(node, f"more than {MAX_INCLUDE_DEPTH} files include each other")
            return
        base = Path() if file == STDIN else Path(file).parent
        wanted = str(node.value)
        plain = str(base / wanted)
        # Only the included path may be a pattern, not its base folder.
        pattern = str(Path(glob.escape(str(base))) / wanted)
        try:
            named = Path(plain).is_file()
            files = files_at(plain if Path(plain).exists() else pattern, self._root)
            if any(not is_inside(file, self._root) for file in files):
                raise UsageError(f"{wanted} is outside {self._root}, where the named document is ({OUTSIDE_HINT})")
        except (UsageError, ValueError, OSError) as failure:
            self.found.fault(node, str(failure))
            return
        for one in files:
            if (own := identity(one)) not in self._seen:
                self._file(one, (*chain, own))
            elif named and own in chain:
                # A folder or a pattern may well contain the file that includes it.
                self.found.fault(node, f"{wanted} includes this file")
