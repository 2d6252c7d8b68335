"""What one server run is told: every flag of `natsctl server run` as a typed value."""

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from natsctl.broker.account_config import AccountConfig
from natsctl.broker.static_auth import User
from natsctl.server.conf.jetstream_limits import JetStreamLimits

SyncPolicy = Literal["always", "never"] | int
"""When messages are synced: before every ack, left to the kernel, or every so many nanoseconds."""

DEFAULT_PORT: Final = 4222
DEFAULT_HOST: Final = "0.0.0.0"
MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_PENDING_BYTES: Final = 64 << 20
WRITE_DEADLINE_S: Final = 10.0
AUTH_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files of the TLS listener; `verify` asks clients for a certificate signed by `ca_file`."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None
    verify: bool = False


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """The WebSocket listener; `port` -1 takes any free one."""

    port: int
    host: str = DEFAULT_HOST
    tls: TlsOptions | None = None
    no_tls: bool = False
    compression: bool = False


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """One server's settings.

    `port` -1 or 0 takes any free one.  `store_dir` is what the user named: the store itself lives in its
    `jetstream` folder.  `max_memory`/`max_storage` of 0 are derived from the machine.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    server_name: str = ""
    jetstream: bool = False
    store_dir: Path | None = None
    sync: SyncPolicy = "always"
    max_memory: int = 0
    max_storage: int = 0
    domain: str = ""
    jetstream_limits: JetStreamLimits = field(default_factory=JetStreamLimits)
    archive_version: int = 1
    user: str = ""
    password: str = ""
    token: str = ""
    users: tuple[User, ...] = ()
    no_auth_user: str = ""
    accounts: tuple[AccountConfig, ...] = ()
    auth_timeout_s: float = AUTH_TIMEOUT_S
    http_host: str = DEFAULT_HOST
    http_port: int = 0
    """Where monitoring answers; 0: nowhere, -1: any free port."""
    tls: TlsOptions | None = None
    websocket: WebSocketOptions | None = None
    server_tags: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()
    """Keys of the configuration file that ask for what this server does not do; told at the start."""
    max_payload: int = MAX_PAYLOAD_BYTES
    max_pending: int = MAX_PENDING_BYTES
    write_deadline_s: float = WRITE_DEADLINE_S
    log_file: Path | None = None
    log_time: bool = True
    debug: bool = False
    trace: bool = False
    pid_file: Path | None = None
    ports_file_dir: Path | None = None

    @property
    def store_path(self) -> Path:
        """The folder of the store: `jetstream` under the named folder, or under the system's temporary one."""
        return (self.store_dir or Path(tempfile.gettempdir()) / "nats") / "jetstream"

    def at(self, host: str, port: int) -> "ServerOptions":
        """Return the same options for another listen address."""
        return replace(self, host=host, port=port)
