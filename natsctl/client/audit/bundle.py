"""Bundles of a deployment's documents, in the format of `nats audit gather`: a zip file with a manifest.

Each document (an artifact) has tags: its type, the server that sent it and that server's cluster, perhaps an account
and a stream. `capture/misc/manifest.json` lists the tags of every file and is the only index; paths are for people. A
document that comes in pages is a folder of them, `0001.json` and on. Source: jsm.go, audit/archive.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
import orjson

from natsctl.api.errors import UsageError, file_errors
from natsctl.client.atomic_file import PRIVATE, atomic_write

Tags = Mapping[str, str]
"""One value for each label: `artifact_type`, `cluster`, `server`, `account`, `stream`, `profile_name`, or `special`."""

SERVER_TYPES: Final = {
    "VARZ": "variables",
    "EXPVARZ": "exp_variables",
    "CONNZ": "connections",
    "ROUTEZ": "routes",
    "GATEWAYZ": "gateways",
    "LEAFZ": "leafs",
    "SUBSZ": "subs",
    "JSZ": "jetstream_info",
    "ACCOUNTZ": "accounts",
    "HEALTHZ": "health",
}
ACCOUNT_TYPES: Final = {
    "CONNZ": "account_connections",
    "LEAFZ": "account_leafs",
    "SUBSZ": "account_subs",
    "INFO": "account_info",
    "JSZ": "account_jetstream_info",
    "RAFTZ": "account_raftz",
    "IPQUEUESZ": "account_ipqueues",
}
STREAM_TYPE: Final = "stream_info"
PROFILE_TYPE: Final = "profile"
METADATA: Final = "audit_gather_metadata"
LOG: Final = "audit_gather_log"
NO_CLUSTER: Final = "unclustered"
"""Cluster of a server without one, in tags and paths."""
MAX_ARTIFACT_BYTES: Final = 1 << 30
"""Size of a document above which a bundle is refused."""

_ROOT: Final = "capture"
_MANIFEST: Final = f"{_ROOT}/misc/manifest.json"
_ANSWERS: Final = frozenset((*SERVER_TYPES.values(), *ACCOUNT_TYPES.values()))
"""Types of the documents that are answers of servers."""
_LABELS: Final = ("artifact_type", "cluster", "server", "account", "stream", "profile_name", "special")


class Metadata(msgspec.Struct):
    """Origin of a bundle, as its gatherer wrote it."""

    capture_timestamp: str = "0001-01-01T00:00:00Z"
    connected_server_name: str = ""
    connected_server_version: str = ""
    connect_url: str = ""
    user_name: str = ""
    version: str = ""


class Artifact(NamedTuple):
    path: str
    tags: Tags

    @property
    def cluster(self) -> str:
        return self.tags.get("cluster", "")

    @property
    def server(self) -> str:
        return self.tags.get("server", "")


class Bundle:
    """An open bundle; `warnings` are faults that leave it readable."""

    def __init__(self, path: Path) -> None:
        """Open a bundle. Raises UsageError for another file."""
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as failure:
            raise UsageError(f"{path}: {getattr(failure, 'strerror', None) or failure}") from failure
        try:
            manifest = self._manifest()
        except UsageError:
            self._zip.close()
            raise
        self.artifacts = [Artifact(name, tags) for name, tags in sorted(manifest.items())]
        self.warnings = [
            f"{name} is not in the manifest"
            for name in self._zip.namelist()
            if name not in manifest and name != _MANIFEST and not name.endswith("/")
        ]
        self._index: dict[tuple[str, str], set[int]] = {}
        for index, artifact in enumerate(self.artifacts):
            for pair in artifact.tags.items():
                self._index.setdefault(pair, set()).add(index)

    def _manifest(self) -> dict[str, dict[str, str]]:
        names = set(self._zip.namelist())
        if _MANIFEST not in names:
            raise UsageError(f"{self.path} is no bundle of an audit: it has no {_MANIFEST}")
        try:
            said = orjson.loads(self._read(_MANIFEST))
            tags = {name: {str(tag["Name"]): str(tag["Value"]) for tag in listed} for name, listed in said.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as failure:
            raise UsageError(f"{self.path}: its manifest is damaged: {failure!r}") from failure
        if missing := sorted(set(tags) - names):
            raise UsageError(f"{self.path}: {missing[0]} is in its manifest and not in the file")
        return tags

    def _read(self, name: str) -> bytes:
        info = self._zip.getinfo(name)
        if info.file_size > MAX_ARTIFACT_BYTES:
            raise UsageError(f"{self.path}: {name} is larger than {MAX_ARTIFACT_BYTES} bytes")
        try:
            return self._zip.read(info)
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as failure:
            raise UsageError(f"{self.path}: {name}: {failure}") from failure

    def find(self, **tags: str) -> list[Artifact]:
        """Return the artifacts that have all those tags, by path; an empty value of a tag matches any."""
        sets = [self._index.get((label, value), set()) for label, value in tags.items() if value]
        return [self.artifacts[at] for at in sorted(set.intersection(*sets))] if sets else list(self.artifacts)

    def raw(self, artifact: Artifact) -> bytes:
        return self._read(artifact.path)

    def load(self, artifact: Artifact) -> dict[str, Any]:
        """Return an artifact that is a JSON object. Raises UsageError for another.

        The answer of a server has its `server`, also where the gatherer has kept only `data`, as nats 0.1 did.
        """
        try:
            document = orjson.loads(self.raw(artifact))
        except ValueError as failure:
            raise UsageError(f"{self.path}: {artifact.path}: {failure}") from failure
        if not isinstance(document, dict):
            raise UsageError(f"{self.path}: {artifact.path}: expected a JSON object")
        return _answer(artifact, document)

    def documents(self, **tags: str) -> Iterator[tuple[Artifact, dict[str, Any]]]:
        """Yield the JSON objects that have those tags, page after page."""
        for artifact in self.find(**tags):
            if artifact.path.endswith(".json"):
                yield artifact, self.load(artifact)

    def values(self, label: str, **tags: str) -> list[str]:
        """Return the distinct values of a label among the artifacts with those tags, in order."""
        return sorted({one.tags[label] for one in self.find(**tags) if label in one.tags})

    @property
    def metadata(self) -> Metadata:
        """Return the origin of the bundle; unknown fields are empty."""
        for _, document in self.documents(special=METADATA):
            known = {name: str(document[name]) for name in Metadata.__struct_fields__ if document.get(name)}
            return Metadata(**known)
        return Metadata()

    def close(self) -> None:
        self._zip.close()


def _answer(artifact: Artifact, document: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the description of its server, made from its data and its tags if it is missing."""
    if "server" in document or artifact.tags.get("artifact_type") not in _ANSWERS:
        return document
    cluster = "" if artifact.cluster == NO_CLUSTER else artifact.cluster
    server: dict[str, Any] = {"name": artifact.server, "id": str(document.get("server_id") or ""), "cluster": cluster}
    if artifact.tags["artifact_type"] == SERVER_TYPES["VARZ"]:
        said = {"ver": "version", "host": "host", "tags": "tags"}
        server |= {name: document[field] for name, field in said.items() if document.get(field)}
        held = document.get("jetstream")
        server["jetstream"] = isinstance(held, dict) and bool(held.get("config"))
    return {"server": server, "data": document}


@contextmanager
def open_bundle(path: str | Path) -> Iterator[Bundle]:
    bundle = Bundle(Path(path))
    try:
        yield bundle
    finally:
        bundle.close()


class BundleWriter:
    """Writer of a bundle; `finish` adds the manifest."""

    def __init__(self, file: IO[bytes], moment: datetime | None = None) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._moment = (moment or datetime.fromtimestamp(time.time(), UTC)).timetuple()[:6]
        self._manifest: dict[str, list[dict[str, str]]] = {}
        self._pages: dict[str, int] = {}

    def add(self, document: Any, **tags: str) -> None:
        """Add a JSON document, as one more page where the tags have one already."""
        try:
            content = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        except TypeError:  # half of a pair of surrogates, or a number beyond 64 bits
            content = json.dumps(document, indent=2).encode()
        self.add_raw(content, "json", **tags)

    def add_raw(self, content: bytes, extension: str, **tags: str) -> None:
        folder = path_of(tags)
        if "special" in tags or tags.get("artifact_type") == PROFILE_TYPE:
            path = f"{folder}.{extension}"
        else:
            self._pages[folder] = self._pages.get(folder, 0) + 1
            path = f"{folder}/{self._pages[folder]:04d}.{extension}"
        self._write(path, content)
        self._manifest[path] = [{"Name": label, "Value": tags[label]} for label in _LABELS if label in tags]

    def _write(self, path: str, content: bytes) -> None:
        info = zipfile.ZipInfo(path, self._moment)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        self._zip.writestr(info, content)

    def finish(self) -> None:
        self._write(_MANIFEST, orjson.dumps(self._manifest, option=orjson.OPT_INDENT_2))

    def close(self) -> None:
        self._zip.close()


@contextmanager
def write_bundle(path: str | Path, moment: datetime | None = None) -> Iterator[BundleWriter]:
    """Yield the writer of a bundle; it appears at the path when complete, readable only by its owner.

    Raises UsageError.
    """
    with file_errors(path, UsageError), atomic_write(Path(path), PRIVATE) as file:
        writer = BundleWriter(file, moment)
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()


def path_of(tags: Tags) -> str:
    """Return the path of an artifact without page and extension."""
    part = {label: _safe(value) for label, value in tags.items()}
    if "special" in part:
        return f"{_ROOT}/misc/{part['special']}"
    kind, server, cluster = part["artifact_type"], part["server"], part["cluster"]
    if "stream" in part:
        return f"{_ROOT}/accounts/{part['account']}/streams/{part['stream']}/replicas/{cluster}__{server}/{kind}"
    if "account" in part:
        return f"{_ROOT}/accounts/{part['account']}/servers/{cluster}__{server}/{kind}"
    if kind == PROFILE_TYPE:
        return f"{_ROOT}/profiles/{cluster}/{server}__{part['profile_name']}"
    return f"{_ROOT}/clusters/{cluster}/{server}/{kind}"


def _safe(value: str) -> str:
    """Return a value as one part of a path: separators are escaped, as is a name of only dots."""
    shown = value.replace("%", "%25").replace("/", "%2F").replace("\\", "%5C").replace("\0", "%00")
    return shown if value.strip(".") else quote(value or "_", safe="").replace(".", "%2E")
