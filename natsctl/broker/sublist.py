"""Trie of subscriptions: the subscribers that a subject reaches.

Theory of operation. Subscriptions live in a trie of subject tokens, with `*` and `>` as ordinary children. A literal
subject is matched by walking all nodes that its tokens can reach, one level at a time. The walk also finds on how many
leading tokens the result depends: below the last level where a reached node has a literal child, every subject with the
same number of tokens has the same result; and where no reached node has a child but `>`, every longer subject has it.
routes.py caches by that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from natsctl.broker.subscription import Subscription

ANY = b"*"
REST = b">"


FEW: Final = 4
"""Subscriptions at a node that are kept in a tuple: most have one, and a dict for it takes four times the memory."""

Subscriptions: TypeAlias = "tuple[Subscription, ...] | dict[Subscription, None]"
"""In the order in which they came."""


class Node:
    """The subscriptions whose pattern ends here, queue groups' members among them, and the tokens that lead on."""

    __slots__ = ("children", "subs")

    def __init__(self) -> None:
        self.children: dict[bytes, Node] = _CHILDLESS
        self.subs: Subscriptions = ()

    def add(self, sub: Subscription) -> None:
        """Add a subscription that is not here yet."""
        subs = self.subs
        if isinstance(subs, dict):
            subs[sub] = None
        elif len(subs) < FEW:
            self.subs = (*subs, sub)
        else:
            self.subs = dict.fromkeys((*subs, sub))

    def discard(self, sub: Subscription) -> None:
        """Take a subscription out that is here."""
        subs = self.subs
        if isinstance(subs, dict):
            del subs[sub]
        else:
            self.subs = tuple([one for one in subs if one is not sub])


_CHILDLESS: Final[dict[bytes, Node]] = {}
"""The children of every node that has none: it is never written to."""


class SubList:
    """A set of subscriptions of one account."""

    __slots__ = ("_root", "count", "inserted")

    def __init__(self) -> None:
        self._root = Node()
        self.count = 0
        self.inserted = 0
        """Subscriptions that were ever added; those that are not counted any more were removed."""

    def insert(self, sub: Subscription) -> None:
        """Add a subscription; its subject is a valid pattern."""
        node = self._root
        for token in sub.subject.split(b"."):
            children = node.children
            child = children.get(token)
            if child is None:
                if children is _CHILDLESS:
                    children = node.children = {}
                child = children[token] = Node()
            node = child
        if node.subs:
            node.add(sub)
        else:
            node.subs = (sub,)
        self.count += 1
        self.inserted += 1

    def remove(self, sub: Subscription) -> bool:
        """Take a subscription out, and the nodes that only it needed; False where it was not in."""
        node = self._root
        path: list[tuple[Node, bytes]] = []
        for token in sub.subject.split(b"."):
            path.append((node, token))
            child = node.children.get(token)
            if child is None:
                return False
            node = child
        if sub not in node.subs:
            return False
        node.discard(sub)
        for parent, token in reversed(path):
            if node.children or node.subs:
                break
            del parent.children[token]
            node = parent
        self.count -= 1
        return True

    def match(self, tokens: list[bytes]) -> tuple[list[Node], int, int]:
        """Return the nodes whose patterns match, and the number of leading tokens that decided it.

        The last number is how many leading tokens decided it for subjects of every length above that; 0: none.
        """
        found: list[Node] = []
        level = [self._root]
        decided = 0
        for index, token in enumerate(tokens, 1):
            reached: list[Node] = []
            for node in level:
                children = node.children
                known = 0
                rest = children.get(REST)
                if rest is not None:
                    known = 1
                    found.append(rest)
                child = children.get(ANY)
                if child is not None:
                    known += 1
                    reached.append(child)
                if len(children) > known:
                    decided = index
                    child = children.get(token)
                    if child is not None and token != ANY and token != REST:
                        reached.append(child)
            if not reached:
                return found, decided, index - 1 if decided < index else 0
            level = reached
        return found + level, decided, 0

    def __iter__(self) -> Iterator[Subscription]:
        """Yield the subscriptions; the set may change meanwhile, and changes may show or not."""
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield from tuple(node.subs)

    def taking(self, subject: bytes) -> list[Subscription]:
        """Return the subscriptions that a message on a literal subject reaches."""
        nodes, _, _ = self.match(subject.split(b"."))
        return [sub for node in nodes for sub in node.subs]
