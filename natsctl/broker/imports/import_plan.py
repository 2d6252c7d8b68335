"""Plan of the imports of all accounts: those in effect, and the faults of the others.

Theory of operation. A plan is made of all configurations at once: exports first, then imports of streams, then imports
of services, because each import is checked against the exports and against the imports before it. Its findings are
values that can be compared: the broker applies the difference to the plan before. Accounts that arrive one by one, as
an operator's do, are added to the plan if they change nothing for the others. Plans are made in steps, because a JWT
may hold thousands of imports. Rules and texts are nats-server's (server/accounts.go)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, Generic, TypeVar

import msgspec

from natsctl.api.subject_index import Steps, SubjectIndex, finish
from natsctl.api.subject_transform import SubjectMapping, TransformError
from natsctl.api.subjects import has_wildcard, is_literal, is_subset, is_valid_subject
from natsctl.broker.imports.account_config import (
    AccountConfig,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from natsctl.broker.imports.mappings import destination_of, pattern_of, swapped

MAX_SEARCH_DEPTH: Final = 1024
"""Accounts on one path that a search for cycles follows. Source: nats-server, MaxAccountCycleSearchDepth."""
CYCLE: Final = "import forms a cycle"
_TOO_DEEP: Final = "search cycle depth exhausted"
_INVALID: Final = "sublist: invalid subject"


class StreamLink(msgspec.Struct, frozen=True):
    """An import of a stream in effect: `subject` there is seen as `local` here, made by `destination` where given."""

    account: str
    subject: str
    local: str
    destination: str = ""
    allow_trace: bool = False
    """Whether the trace of a message goes on in the importing account."""


class ServiceLink(msgspec.Struct, frozen=True):
    """An import of a service in effect: `local` here asks `subject` there."""

    account: str
    subject: str
    local: str
    destination: str | None
    """The subject there as a destination of `local`, "" if it is the same, None if it is `subject` as text."""
    share: bool
    export: ServiceExport


class Problem(msgspec.Struct, frozen=True):
    """Fault of one export or import of an account, with nats-server's text."""

    account: str
    item: StreamExport | ServiceExport | StreamImport | ServiceImport
    text: str


class _ImportRefusedError(Exception):
    """Why an import is not in effect."""


class _Exports:
    def __init__(self) -> None:
        self._exports: list[StreamExport | ServiceExport] = []
        self._of_subject: dict[str, list[StreamExport | ServiceExport]] = {}
        self._index: SubjectIndex[int] = SubjectIndex()

    def add(self, export: StreamExport | ServiceExport) -> None:
        self._index.add(export.subject.encode(), len(self._exports))
        self._exports.append(export)
        self._of_subject.setdefault(export.subject, []).append(export)

    def of_subject(self, subject: str) -> list[StreamExport | ServiceExport]:
        """Return the entries of exactly this subject."""
        return self._of_subject.get(subject, [])

    def first_covering(self, subject: str) -> StreamExport | ServiceExport | None:
        place = min(self._index.covering(subject.encode()), default=None)
        return self._exports[place] if place is not None else None


Link = TypeVar("Link", StreamLink, ServiceLink)


class _Links(Generic[Link]):
    """The imports of one account that are of one kind and in effect."""

    def __init__(self, subject_of: Callable[[Link], str]) -> None:
        self.links: list[Link] = []
        self.known: dict[tuple[str, str], Link] = {}
        """The first link of an account and a subject."""
        self._subject_of: Callable[[Link], str] = subject_of
        self._index: SubjectIndex[int] = SubjectIndex()

    def add(self, subject: str, link: Link) -> None:
        self._index.add(self._subject_of(link).encode(), len(self.links))
        self.links.append(link)
        self.known.setdefault((link.account, subject), link)

    def overlapping(self, subject: str) -> list[Link]:
        """Return the links that a message on `subject` may take, in order."""
        return [self.links[place] for place in sorted(self._index.overlapping(subject.encode()))]


class ImportPlan:
    """The imports in effect by importing account, and the problems."""

    def __init__(self, configs: Iterable[AccountConfig] = ()) -> None:
        self._configs: dict[str, AccountConfig] = {}
        self._named: set[str] = set()
        """Accounts that others name in their imports and exports."""
        self._exports: dict[tuple[str, type[StreamExport | ServiceExport]], _Exports] = {}
        self._stream_links: dict[str, _Links[StreamLink]] = {}
        self._service_links: dict[str, _Links[ServiceLink]] = {}
        self.streams: dict[str, list[StreamLink]] = {}
        self.services: dict[str, list[ServiceLink]] = {}
        self.problems: list[Problem] = []
        finish(self.extend(tuple(configs)))

    def covers(self, config: AccountConfig) -> bool:
        """Return whether an account is part of the plan, with these imports and exports."""
        known = self._configs.get(config.name)
        return known is not None and (known.imports, known.exports) == (config.imports, config.exports)

    def may_extend(self, configs: Sequence[AccountConfig]) -> bool:
        """Return whether accounts are all new, no known one names them, and every account that they name is known."""
        names = {config.name for config in configs}
        wanted = {item.account for config in configs for item in config.imports}
        return (
            names.isdisjoint(self._configs) and names.isdisjoint(self._named) and wanted <= names | set(self._configs)
        )

    def extend(self, configs: Sequence[AccountConfig]) -> Steps[None]:
        """Add new accounts that `may_extend` accepts; equals a new plan with them last."""
        self._configs |= {config.name: config for config in configs}
        for config in configs:
            self._named.update(item.account for item in config.imports)
            self._named.update(name for export in config.exports for name in export.accounts or ())
            yield from self._index_exports(config)
            yield from self._check_exports(config)
        for kind in (StreamImport, ServiceImport):
            for config in configs:
                for item in config.imports:
                    if isinstance(item, kind):
                        self._add(config.name, item)
                        yield 1

    def forget(self, configs: Sequence[AccountConfig]) -> None:
        """Remove accounts that were to be added and could not be; nothing depends on them yet."""
        names = {config.name for config in configs}
        for name in names:
            self._configs.pop(name, None)
            for links in (self.streams, self.services, self._stream_links, self._service_links):
                links.pop(name, None)
            for exported in (StreamExport, ServiceExport):
                self._exports.pop((name, exported), None)
        self.problems[:] = [problem for problem in self.problems if problem.account not in names]

    def _add(self, account: str, item: StreamImport | ServiceImport) -> None:
        kind = "stream" if isinstance(item, StreamImport) else "service"
        if item.account not in self._configs:
            self.problems.append(Problem(account, item, f'"{item.account}" account not defined for {kind} import'))
            return
        try:
            if isinstance(item, StreamImport):
                self._add_stream(account, item)
            else:
                self._add_service(account, item)
        except (_ImportRefusedError, TransformError) as refused:
            text = f'Error adding {kind} import "{item.subject}": {refused}'
            self.problems.append(Problem(account, item, text))

    # Exports

    def _index_exports(self, config: AccountConfig) -> Steps[None]:
        indexes: dict[type[StreamExport | ServiceExport], _Exports]
        indexes = {exported: _Exports() for exported in (StreamExport, ServiceExport)}
        for export in config.exports:
            indexes[type(export)].add(export)
            yield 1
        self._exports |= {(config.name, exported): exports for exported, exports in indexes.items()}

    def _check_exports(self, config: AccountConfig) -> Steps[None]:
        for export in config.exports:
            yield 1
            kind = "stream" if isinstance(export, StreamExport) else "service"
            unknown = [name for name in export.accounts or () if name not in self._configs]
            self.problems += [
                Problem(config.name, export, f'"{name}" account not defined for {kind} export') for name in unknown
            ]
            position, tokens = export.account_token_position, export.subject.split(".")
            if position and (len(tokens) < position or tokens[position - 1] != "*"):
                text = f'Error adding {kind} export "{export.subject}": {_INVALID}'
                self.problems.append(Problem(config.name, export, text))
            elif isinstance(export, ServiceExport) and export.latency is not None:
                self._check_latency(config, export, export.latency.subject)

    def _check_latency(self, config: AccountConfig, export: ServiceExport, results: str) -> None:
        why, services = "", self._exports[config.name, ServiceExport]
        if not (is_valid_subject(results) and is_literal(results)) or services.first_covering(results) is not None:
            why = "invalid publish subject"
        elif export.response != "single":
            why = "bad service response type"
        if why:
            text = f'Error adding service latency sampling for "{export.subject}" on subject "{results}": {why}'
            self.problems.append(Problem(config.name, export, text))

    def _export(self, account: str, importer: str, item: StreamImport | ServiceImport) -> ServiceExport | bool | None:
        """Return the export that permits `importer`'s import, or False."""
        exports = self._exports[account, StreamExport if isinstance(item, StreamImport) else ServiceExport]
        same = exports.of_subject(item.subject)
        wider = None if same else exports.first_covering(item.subject)
        for export in same or ([wider] if wider is not None else ()):
            if _lets(export, importer, item, [] if same else item.subject.split(".")):
                return export if isinstance(export, ServiceExport) else None
        return False

    # Streams

    def _add_stream(self, account: str, item: StreamImport) -> None:
        if not is_valid_subject(item.subject) or self._export(item.account, account, item) is False:
            raise _ImportRefusedError("stream import not authorized")
        to = item.to or item.subject
        for subject in (to, item.subject):
            self._refuse_stream_cycle(item.account, subject, {account})
        destination = ""
        if has_wildcard(item.subject) and to != item.subject:
            destination = destination_of(to)
            try:
                SubjectMapping.compile(item.subject, destination, strict=True)
            except TransformError as bad:
                why = f'failed to create mapping transform for stream import subject from "{item.subject}" to "{to}"'
                raise _ImportRefusedError(f"{why}: {bad}") from bad
            to = pattern_of(destination)
        links = self._stream_links.get(account)
        if links is None:
            links = self._stream_links[account] = _Links(attrgetter("local"))
            self.streams[account] = links.links
        if (item.account, item.subject) in links.known:
            raise _ImportRefusedError("stream import already exists")
        links.add(item.subject, StreamLink(item.account, item.subject, to, destination, item.allow_trace))

    def _refuse_stream_cycle(self, account: str, subject: str, visited: set[str]) -> None:
        if len(visited) >= MAX_SEARCH_DEPTH:
            raise _ImportRefusedError(_TOO_DEEP)
        links = self._stream_links.get(account)
        if links is None or self._exports[account, StreamExport].first_covering(subject) is None:
            return
        for link in links.overlapping(subject):
            if link.account in visited:
                raise _ImportRefusedError(CYCLE)
            visited.add(account)
            narrowed = link.local if is_subset(link.local, subject) else subject
            self._refuse_stream_cycle(link.account, narrowed, visited)

    # Services

    def _add_service(self, account: str, item: ServiceImport) -> None:
        local = item.to or item.subject
        if not (is_valid_subject(local) and is_valid_subject(item.subject)):
            raise _ImportRefusedError(_INVALID)
        export = self._export(item.account, account, item)
        if not isinstance(export, ServiceExport):
            raise _ImportRefusedError("service import not authorized")
        shown = pattern_of(local) if has_wildcard(item.subject) else local
        self._refuse_service_cycle(item.account, shown, {account})
        links = self._service_links.get(account)
        if links is None:
            links = self._service_links[account] = _Links(attrgetter("subject"))
            self.services[account] = links.links
        destination = self._service_destination(local, item.subject)
        if (earlier := links.known.get((item.account, shown))) is not None:
            raise _ImportRefusedError(
                f'duplicate service import subject "{local}", previously used in import for account '
                f'"{earlier.account}", subject "{earlier.subject}"'
            )
        links.add(shown, ServiceLink(item.account, item.subject, shown, destination, item.share, export))

    def _service_destination(self, local: str, subject: str) -> str | None:
        """Return how a request's subject becomes the service's, as in ServiceLink."""
        if not has_wildcard(subject):
            return None
        if subject == local:
            return ""
        theirs, ours = pattern_of(subject), destination_of(local)
        try:
            SubjectMapping.compile(theirs, ours, strict=True)
        except TransformError as bad:
            why = f'failed to create mapping transform for service import subject from "{local}" to "{subject}"'
            raise _ImportRefusedError(f"{why}: {bad}") from bad
        return swapped(theirs, ours)

    def _refuse_service_cycle(self, account: str, subject: str, visited: set[str]) -> None:
        if len(visited) >= MAX_SEARCH_DEPTH:
            raise _ImportRefusedError(_TOO_DEEP)
        links = self._service_links.get(account)
        for link in links.overlapping(subject) if links is not None else ():
            if link.account in visited:
                raise _ImportRefusedError(CYCLE)
            visited.add(account)
            narrowed = link.local if is_subset(link.local, subject) else subject
            self._refuse_service_cycle(link.account, narrowed, visited)


def _lets(
    export: StreamExport | ServiceExport, importer: str, item: StreamImport | ServiceImport, tokens: list[str]
) -> bool:
    """Return whether an export is for `importer`; `tokens` are the subject's if it differs from the export's."""
    position = export.account_token_position
    if position:
        return position <= len(tokens) and tokens[position - 1] == importer
    if export.token_required:
        return bool(item.token)  # the authenticator only passes imports with a valid token
    return export.accounts is None or importer in export.accounts
