"""What may cross one leaf node connection, and in which direction.

Theory of operation. `send` rules say what we may put on the connection, `ask` rules what we may ask the other side
for, `export` rules, which a hub has, what the other side may send. Deny wins; where there is an allow list everything
else is denied. Interest may be wider than what is allowed (`foo.>` where `foo.bar` is): messages are looked at again.
Answers for literal subjects are kept, bounded, until a rule changes. Source: nats-server, leafnode.go and client.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from natsctl.api.subjects import has_wildcard, matches, overlaps

if TYPE_CHECKING:
    from natsctl.broker.auth.permit import Replies

MAX_CACHED: Final = 512
"""Subjects whose answer is kept; then all are forgotten."""
ALWAYS_LET_IN: Final = (b"_R_.", b"$JS.ACK.")
"""Beginnings of subjects that are answers: no rule is asked."""
UNRULED_INTEREST: Final = (b"$LDS.", b"$GR.", b"_GR_.")
"""Beginnings of subjects of interest that no rule is asked about."""


class Direction:
    """Allow and deny of one direction."""

    __slots__ = ("_known", "allow", "deny")

    def __init__(self) -> None:
        self.allow: list[bytes] | None = None
        self.deny: list[bytes] = []
        self._known: dict[bytes, bool] = {}

    def set(self, allow: Iterable[str] | None, deny: Iterable[str]) -> None:
        """Hold to other rules than before; queue groups in them are not looked at."""
        self.allow = None if allow is None else [_pattern(text) for text in allow]
        self.deny = [_pattern(text) for text in deny]
        self._known.clear()

    def forbid(self, patterns: Iterable[str]) -> None:
        """Deny more than before."""
        self.deny += [pattern for text in patterns if (pattern := _pattern(text)) not in self.deny]
        self._known.clear()

    def allows(self, subject: bytes) -> bool:
        """Return whether a message on `subject` may pass."""
        if self.allow is None and not self.deny:
            return True
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            known = self._known[subject] = self._matches(subject)
        return known

    def allows_interest(self, subject: bytes) -> bool:
        """Return whether interest in `subject` may pass; one that is wider than what is allowed may."""
        if self.allow is None and not self.deny:
            return True
        if self._matches(subject):
            return True
        if self.allow is None or not has_wildcard(subject) or any(matches(deny, subject) for deny in self.deny):
            return False
        return any(overlaps(pattern, subject) for pattern in self.allow)

    def _matches(self, subject: bytes) -> bool:
        if any(matches(pattern, subject) for pattern in self.deny):
            return False
        return self.allow is None or any(matches(pattern, subject) for pattern in self.allow)


class LinkRules:
    """The rules of one connection."""

    __slots__ = ("ask", "export", "replies", "send")

    def __init__(self) -> None:
        self.send = Direction()
        self.ask = Direction()
        self.export = Direction()
        self.replies: Replies | None = None
        """Subjects on which a hub's user may respond besides, where it may respond to messages it gets."""

    def may_ask(self, subject: bytes) -> bool:
        """Return whether interest in `subject` may be announced to the other side."""
        return subject.startswith(UNRULED_INTEREST) or self.ask.allows_interest(subject)

    def may_be_asked(self, subject: bytes) -> bool:
        """Return whether the other side may have interest in `subject`; wildcards may, messages are looked at."""
        return subject.startswith(UNRULED_INTEREST) or has_wildcard(subject) or self.send.allows(subject)

    def lets_in(self, subject: bytes, *, spoke: bool) -> bool:
        """Return whether the other side may send a message on `subject`."""
        if subject.startswith(ALWAYS_LET_IN):
            return True
        if (self.ask if spoke else self.export).allows(subject):
            return True
        return self.replies is not None and self.replies.use(subject)

    def forbid_both(self, patterns: Sequence[str]) -> None:
        """Block these subjects in both directions."""
        self.send.forbid(patterns)
        self.ask.forbid(patterns)


def _pattern(text: str) -> bytes:
    return text.partition(" ")[0].encode()
