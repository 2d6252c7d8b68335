"""Which servers are meant by a request of the system account, and what they answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from natsctl.api.catalogue import ApiError
from natsctl.api.errors import ApiResponseError


@dataclass(frozen=True, slots=True)
class Scope:
    """Which servers are meant: by name, id or host; by cluster; by tags, all of which they must have.

    `expect` is how many must answer, 0 for as many as know each other.
    """

    name: str = ""
    cluster: str = ""
    tags: tuple[str, ...] = ()
    expect: int = 0

    def admits(self, server: dict[str, Any]) -> bool:
        """Whether a server that describes itself like this is meant."""
        if self.name and self.name not in (server.get("name"), server.get("id"), server.get("host")):
            return False
        if self.cluster and self.cluster != server.get("cluster"):
            return False
        tags = {str(tag).lower() for tag in server.get("tags") or ()}
        return all(tag.lower() in tags for tag in self.tags)

    @property
    def shown(self) -> str:
        """The scope in words, for texts."""
        said = [self.name, f"in cluster {self.cluster}" if self.cluster else ""]
        return " ".join(word for word in (*said, f"tagged {', '.join(self.tags)}" if self.tags else "") if word)


ALL = Scope()


class ServerAnswer:
    """What one server answered: `raw` as it was sent, and how long that took."""

    __slots__ = ("raw", "rtt_ns")

    def __init__(self, raw: dict[str, Any], rtt_ns: int = 0) -> None:
        self.raw = raw
        self.rtt_ns = rtt_ns

    @property
    def server(self) -> dict[str, Any]:
        """Who answered: `name`, `id`, `host`, `ver`, perhaps `cluster`, `tags`, `jetstream`."""
        return _object(self.raw.get("server"))

    @property
    def name(self) -> str:
        """The server's name."""
        return str(self.server.get("name") or "")

    @property
    def id(self) -> str:
        """The server's id."""
        return str(self.server.get("id") or "")

    @property
    def cluster(self) -> str:
        """The server's cluster, empty where it has none."""
        return str(self.server.get("cluster") or "")

    @property
    def data(self) -> dict[str, Any]:
        """What was asked for; empty where the server refused."""
        return _object(self.raw.get("data") or self.raw.get("statsz"))

    @property
    def failure(self) -> ApiResponseError | None:
        """Why the server refused, if it did."""
        error = self.raw.get("error")
        if not error:
            return None
        said = _object(error)
        text = str(said.get("description") or error)
        return ApiResponseError(ApiError(code=int(said.get("code") or 500), description=text))


class Answers(list[ServerAnswer]):
    """One answer a server, by name; `expected` is how many there should be."""

    def __init__(self, answers: Iterable[ServerAnswer], expected: int) -> None:
        super().__init__(sorted(answers, key=lambda one: (one.cluster, one.name, one.id)))
        self.expected = max(expected, 0)

    @property
    def missing(self) -> int:
        """How many servers did not answer."""
        return max(0, self.expected - len(self))

    @property
    def raw(self) -> list[dict[str, Any]]:
        """The answers as they were sent."""
        return [one.raw for one in self]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
