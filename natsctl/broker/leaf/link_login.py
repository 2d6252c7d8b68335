"""The login of a server that connects to us: an answer that takes long is worked out as a client's is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from natsctl.broker.auth.grant import Grant, Pending, Refusal
from natsctl.broker.auth.login import Login

if TYPE_CHECKING:
    from natsctl.broker.leaf.accepted import AcceptedLink


class LinkLogin(Login):
    """The credentials and the grant of one accepted link."""

    __slots__ = ("_link",)

    def __init__(self, link: AcceptedLink) -> None:
        super().__init__(link)
        self._link = link

    def ask(self, answer: Grant | Refusal | Pending) -> None:
        """Take an authenticator's answer, or have the shell work it out."""
        if isinstance(answer, Pending):
            self.pending = answer
            self._link.broker.undecided.append(self._link)
        else:
            self._answered(answer)

    def _answered(self, answer: Grant | Refusal) -> None:
        self._link.answered(answer)

    def refuse(self, refusal: Refusal) -> None:
        """Close the connection and say why."""
        self._link.refuse(refusal)
