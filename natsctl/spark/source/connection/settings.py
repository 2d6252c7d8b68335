"""The server's address and login: all that a task needs, as text, without files."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ServerSettings:
    """One server or cluster; certificates are PEM texts, so that executors need none of the driver's files.

    Pickled with readers and writers only; what Spark prints of a query never has it.
    """

    urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    tls_ca: str = field(default="", repr=False)
    tls_cert: str = field(default="", repr=False)
    tls_key: str = field(default="", repr=False)
    tls_first: bool = False
    tls_insecure: bool = False
    api_prefix: str = "$JS.API"
    inbox_prefix: str = "_INBOX"
    timeout_s: float = 5.0
    """The time for which an answer or a connection is awaited."""
    retries: int = 3
    retry_interval_s: float = 1.0
