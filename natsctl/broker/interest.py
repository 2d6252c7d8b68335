"""Standing questions about who subscribes: told when the answer may have changed."""

from __future__ import annotations

from collections.abc import Callable

from natsctl.api.subjects import matches


class Watch:
    """A standing question about the interest in one literal subject."""

    __slots__ = ("_watches", "callback", "subject")

    def __init__(self, watches: dict[bytes, list[Watch]], subject: bytes, callback: Callable[[], None]) -> None:
        self._watches = watches
        self.subject = subject
        self.callback = callback

    def cancel(self) -> None:
        """End the watch; harmless when it has ended."""
        watches = self._watches.get(self.subject, [])
        if self in watches:
            watches.remove(self)
            if not watches:
                del self._watches[self.subject]


class Watches:
    """The questions about one account."""

    __slots__ = ("by_subject",)

    def __init__(self) -> None:
        self.by_subject: dict[bytes, list[Watch]] = {}
        """Each subject with its watches; empty: `changed` has nothing to call."""

    def add(self, subject: bytes, callback: Callable[[], None]) -> Watch:
        """Call `callback` after each subscription that takes `subject` came or went."""
        watch = Watch(self.by_subject, subject, callback)
        self.by_subject.setdefault(subject, []).append(watch)
        return watch

    def changed(self, pattern: bytes) -> None:
        """Call the watches of subjects that `pattern` matches: a subscription to it was added or has ended."""
        if pattern in self.by_subject:
            touched = [pattern]
        else:
            touched = [subject for subject in self.by_subject if matches(pattern, subject)]
        for subject in touched:
            for watch in tuple(self.by_subject.get(subject, ())):
                watch.callback()
