"""The selection of the user: a list, an entry of it, one of its pages, and filters; no widget."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from natsctl.api.errors import NatsctlError
from natsctl.api.subjects import has_wildcard
from natsctl.cli.browse import details
from natsctl.cli.browse.actions import BrowseTarget
from natsctl.client.buckets import kind_of

if TYPE_CHECKING:
    from natsctl.api.archive.archive import ArchivedMessage
    from natsctl.cli.browse.catalog import Catalog, CatalogSection
    from natsctl.cli.render.page import Page


class Tab(NamedTuple):
    """A page of an entry: a function that makes it, or the name of a list."""

    title: str
    content: Callable[[Any], Page] | str


TABS: Final[dict[str, tuple[Tab, ...]]] = {
    "Attention": (Tab("Finding", details.explanation),),
    "Streams": (
        Tab("Config", details.stream_config),
        Tab("State", details.stream_state),
        Tab("Consumers", "consumers"),
        Tab("Messages", "messages"),
    ),
    "Consumers": (Tab("Config", details.consumer_config), Tab("State", details.consumer_state)),
    "KV buckets": (Tab("Status", details.kv_status), Tab("Keys", "keys"), Tab("History", "messages")),
    "Object buckets": (Tab("Status", details.object_status), Tab("Objects", "objects")),
    "Services": (Tab("Instances", details.service_page),),
    "Dead letters": (Tab("Letter", details.letter_page), Tab("Message", "messages")),
    "Servers": (Tab("Server", details.server_page),),
}


class BrowseSelection:
    """The selection; each list keeps its own entry, page and filter."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.section: CatalogSection = catalog.streams
        self.name_filters: dict[str, str] = {}
        """Part of the names that a list shows, by the title of the list."""
        self.queries: dict[str, str] = {}
        self._filtered: tuple[list[str], str, list[str]] = ([], "", [])
        self._tabs: dict[str, int] = {}
        self._selected: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        part = self.name_filter.lower()
        names = self.section.names
        if not part:
            return names
        if self._filtered[0] is not names or self._filtered[1] != part:
            self._filtered = names, part, [name for name in names if part in name.lower()]
        return self._filtered[2]

    @property
    def name_filter(self) -> str:
        return self.name_filters.get(self.section.title, "")

    @property
    def name(self) -> str:
        return self._selected.get(self.section.title, "")

    @name.setter
    def name(self, name: str) -> None:
        self.select(self.section, name)

    def select(self, section: CatalogSection, name: str) -> None:
        self._selected[section.title] = name

    @property
    def tabs(self) -> Sequence[Tab]:
        return TABS[self.section.title]

    @property
    def tab(self) -> Tab:
        return self.tabs[min(self._tabs.get(self.section.title, 0), len(self.tabs) - 1)]

    def show_tab(self, index: int) -> None:
        self._tabs[self.section.title] = index

    def show_list(self, content: str) -> bool:
        """Show the page with a list, and return whether the entry has one."""
        index = next((index for index, tab in enumerate(self.tabs) if tab.content == content), None)
        if index is not None:
            self.show_tab(index)
        return index is not None

    @property
    def stream(self) -> str:
        """Return the stream that the selected entry is, or belongs to."""
        name, catalog = self.name, self.catalog
        if self.section is catalog.consumers:
            return catalog.consumers.stream
        if self.section is catalog.attention:
            return catalog.attention.places.get(name, ("", ""))[0]
        if self.section is catalog.letters:
            letter = catalog.letters.facts(name).info
            return letter.stream if letter is not None else ""
        return name if self.section in (catalog.streams, catalog.kv, catalog.objects) else ""

    @property
    def bucket(self) -> str:
        kind = kind_of(self.name)
        return kind.bucket_of(self.name) if kind is not None and self.name else ""

    @property
    def query(self) -> str:
        if self.tab.content == "objects":
            return f"--subject '$O.{self.bucket}.M.>'"
        if self.section is self.catalog.letters and self.name:
            return f"--seq {self.catalog.letters.facts(self.name).info.seq}"
        return self.queries.get(self.stream, "")

    @property
    def heading(self) -> str:
        if not self.name:
            return self.section.title
        above = f"{self.catalog.consumers.stream} > " if self.section is self.catalog.consumers else ""
        return f"{self.section.noun} {above}{self.section.label(self.name)}"

    def choose_consumers(self) -> None:
        if self.stream and self.section is not self.catalog.consumers:
            self.catalog.consumers.choose(self.stream)

    def open_name(self, name: str) -> str:
        """Return the name of an entry that the user gave; the list shows it from now on."""
        kinds = {id(self.catalog.kv): "KV_", id(self.catalog.objects): "OBJ_"}
        name = kinds.get(id(self.section), "") + name
        if name not in self.section.names:
            self.section.add(name)
        self.name_filters.pop(self.section.title, None)
        return name

    def target(self) -> BrowseTarget:
        """Return the entry that is selected on the left."""
        catalog, name, stream = self.catalog, self.name, self.stream
        if not name:
            return BrowseTarget("")
        if self.section is catalog.streams:
            config = getattr(catalog.streams.facts(name).info, "config", None)
            subjects: list[str] = [*(config.subjects or ())] if config is not None else []
            subject = subjects[0] if len(subjects) == 1 and not has_wildcard(subjects[0]) else ""
            return BrowseTarget("stream", name, name, subject=subject, text=name)
        if self.section is catalog.consumers:
            return BrowseTarget("consumer", name, catalog.consumers.stream, text=name)
        if self.section is catalog.attention:
            consumer = catalog.attention.places.get(name, ("", ""))[1]
            return BrowseTarget("consumer" if consumer else "stream", consumer or stream, stream, text=name)
        if self.section is catalog.letters:
            letter = catalog.letters.facts(name).info
            if letter is None:  # a name that the user gave
                return BrowseTarget("", text=name)
            return BrowseTarget("dead letter", letter.consumer, letter.stream, letter.seq, letter.subject, name)
        if self.section is catalog.kv:
            return BrowseTarget("kv", self.bucket, stream, text=self.bucket)
        if self.section is catalog.objects:
            return BrowseTarget("object bucket", self.bucket, stream, text=self.bucket)
        return BrowseTarget(self.section.noun.lower(), name, text=name)

    def message_target(self, message: ArchivedMessage) -> BrowseTarget:
        """Return a message on the right, or the object that it describes."""
        from natsctl.client.object_store import to_object

        if self.tab.content == "objects":
            with contextlib.suppress(NatsctlError):
                stored = to_object(message.payload, "1970-01-01T00:00:00Z", message.seq, "")
                return BrowseTarget("object", stored.name, self.bucket, text=stored.name)
        subject = message.subject.decode("utf-8", "replace")
        text = message.payload.decode("utf-8", "backslashreplace")
        return BrowseTarget("message", str(message.seq), self.stream, message.seq, subject, text)
