"""Options of one server, its leaf nodes included: every flag and every key of nats.conf as a typed value."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from natsctl.api.model import Confidential
from natsctl.wire.server_url import ServerUrl

if TYPE_CHECKING:
    from pathlib import Path

    from natsctl.api.jwt_claims import OperatorClaims
    from natsctl.broker.auth.static_auth import User
    from natsctl.broker.imports.account_config import AccountConfig
    from natsctl.broker.jwt.callout import CalloutSettings
    from natsctl.jetstream.engine_options import BatchLimits


SyncPolicy = Literal["always", "never"] | int
"""When messages are synced: before every ack, left to the kernel, or at an interval in nanoseconds."""

WriteTimeout = Literal["", "close", "retry"]
"""What becomes of a connection that has missed its write deadline; empty: clients are closed, leaf nodes retry."""

DEFAULT_PORT: Final = 4222
DEFAULT_HOST: Final = "0.0.0.0"  # nosec B104 # nats-server's default; the log warns if there are no users
SINGLE_NODE: Final = "natsctl server is a single node; natsctl cluster run starts a cluster of nats-servers"
NO_PROFILER: Final = "natsctl server has no Go profiler; look at /metrics and the log"
"""Reasons for refusing a flag or a key of nats.conf."""
UNSPECIFIED: Final = ("", DEFAULT_HOST, "::")
"""Hosts that mean every address of the machine."""
MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_PENDING_BYTES: Final = 64 << 20
WRITE_DEADLINE_S: Final = 10.0
AUTH_TIMEOUT_S: Final = 2.0
MAX_CONTROL_LINE_BYTES: Final = 4096
PING_INTERVAL_S: Final = 120.0
PING_MAX: Final = 2
LAME_DUCK_DURATION_S: Final = 120.0
LAME_DUCK_GRACE_S: Final = 10.0
LOG_FORMATS: Final = ("text", "json")
MAX_CLOSED_CLIENTS: Final = 10_000
ERROR_REPORTS: Final = 3600
RECONNECT_ERROR_REPORTS: Final = 1
TLS_TIMEOUT_S: Final = 2.0
OCSP_TIMEOUT_S: Final = 2.0
OCSP_CLOCK_SKEW_S: Final = 30.0
OCSP_TTL_S: Final = 3600.0
OCSP_CACHE_FOLDER: Final = "_rc_"
OCSP_SAVE_INTERVAL_S: Final = 300.0
"""Defaults of OCSP. Source: nats-server, certidp.go and ocsp_responsecache.go."""
WS_HANDSHAKE_TIMEOUT_S: Final = 2.0


class OcspPeerOptions(msgspec.Struct, frozen=True):
    """The check of the other side's certificates at their OCSP responders, if `verify`."""

    verify: bool = False
    timeout_s: float = OCSP_TIMEOUT_S
    """Time limit of one request to a responder."""
    clock_skew_s: float = OCSP_CLOCK_SKEW_S
    warn_only: bool = False
    """Nobody is refused; the log shows who would be."""
    unknown_is_good: bool = False
    allow_when_unreachable: bool = False
    """Without an answer, refuse only certificates with a cached revocation."""
    ttl_s: float = OCSP_TTL_S
    """Validity of a response that names no end."""


class OcspOptions(msgspec.Struct, frozen=True):
    mode: Literal["auto", "always", "never", "must"] = "auto"
    urls: tuple[str, ...] = ()
    """Responders instead of the ones in the certificates."""


class OcspCacheOptions(msgspec.Struct, frozen=True):
    kind: Literal["none", "local"] = "local"
    folder: str = OCSP_CACHE_FOLDER
    preserve_revoked: bool = False
    save_interval_s: float = OCSP_SAVE_INTERVAL_S


class TlsOptions(msgspec.Struct, frozen=True):
    """One block `tls`; `verify` asks clients for a certificate signed by `ca_file`, or by the system's authorities."""

    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    verify: bool = False
    verify_and_map: bool = False
    """Users are found by the names in the client's certificate."""
    timeout_s: float = TLS_TIMEOUT_S
    min_version: Literal["1.2", "1.3"] = "1.2"
    cipher_suites: tuple[str, ...] = ()
    """IANA names; empty: every suite that is held secure."""
    curve_preferences: tuple[str, ...] = ()
    insecure: bool = False
    """A remote's certificate is not checked; listeners do not ask."""
    handshake_first: bool = False
    """The handshake comes before INFO."""
    fallback_s: float = 0.0
    """With `handshake_first`: how long to wait for a handshake before INFO is sent in clear text; 0: no limit."""
    pinned_certs: frozenset[str] = frozenset()
    """SHA-256 in hex of the public keys that clients may have; empty: any."""
    connection_rate_limit: int = 0
    """Handshakes a second; 0: no limit."""
    certs: tuple[tuple[Path, Path], ...] = ()
    """Pairs of certificate and key files, chosen by the client's server name."""
    ocsp_peer: OcspPeerOptions | None = None

    @property
    def checks_peers(self) -> bool:
        return self.ocsp_peer is not None and self.ocsp_peer.verify

    @property
    def pairs(self) -> tuple[tuple[Path | None, Path | None], ...]:
        return (*self.certs, (self.cert_file, self.key_file)) if self.cert_file or self.key_file else self.certs


class WebSocketOptions(msgspec.Struct, frozen=True):
    """The WebSocket listener; `port` -1 takes any free one."""

    port: int
    host: str = DEFAULT_HOST
    tls: TlsOptions | None = None
    no_tls: bool = False
    compression: bool = False
    advertise: str = ""
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    handshake_timeout_s: float = WS_HANDSHAKE_TIMEOUT_S
    user: str = ""
    password: str = ""
    token: str = ""
    auth_timeout_s: float = 0.0
    """Time limit of the CONNECT of clients of this listener; 0: the server's."""
    no_auth_user: str = ""
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the answer to a handshake besides the protocol's own."""
    ping_interval_s: float = 0.0
    """Interval of PINGs to clients of this listener; 0: the server's."""


class EncryptionOptions(Confidential, frozen=True):
    """The keys of an encrypted store; an empty `key` leaves it plain."""

    UNSHOWN: ClassVar = ("key", "prev_key")

    key: str = ""
    prev_key: str = ""
    """Opens a store that is not under `key` yet."""
    cipher: Literal["chacha", "aes"] = "chacha"

    @property
    def cipher_name(self) -> str:
        return "ChaCha20-Poly1305" if self.cipher == "chacha" else "AES-GCM"


class ServerJetStreamLimits(msgspec.Struct, frozen=True):
    """Limits of JetStream for every account, named as in the engine's options; 0: none, or the default."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0
    max_duplicate_window_ns: int = 0
    batches: BatchLimits | None = None
    """None: the engine's own."""


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


Deleting = Literal["no", "rename", "remove"]


class DirectoryOptions(msgspec.Struct, frozen=True):
    """A folder of account JWTs: every account (`full`), or used ones (`cache`)."""

    folder: Path
    full: bool = True
    deleting: Deleting = "no"
    limit: int = 0
    """Accounts that are kept; 0: any number."""
    ttl_s: float = 0.0
    """How long an unused JWT is kept; 0: no limit."""


class OperatorOptions(Confidential, frozen=True):
    UNSHOWN: ClassVar = ("preload", "sentinel")

    operators: tuple[OperatorClaims, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    memory: bool = False
    """The resolver has the preloaded JWTs only."""
    directory: DirectoryOptions | None = None
    url: str = ""
    """The JWT of each account is under this URL, by its public key."""
    url_tls: TlsOptions | None = None
    preload: tuple[tuple[str, str], ...] = ()
    """Account JWTs by public key."""
    pinned: tuple[str, ...] = ()
    sentinel: str = ""

    @property
    def account_url(self) -> str:
        """The URL of account JWTs, without a resolver the only operator's; "" without one."""
        if self.memory or self.directory is not None:
            return ""
        server = self.operators[0].nats.account_server_url if len(self.operators) == 1 else ""
        return self.url or (f"{server}/accounts" if server else "")


class ServerOptions(msgspec.Struct, frozen=True):
    """One server's settings.

    `port` -1 or 0 takes any free one.  `store_dir` is the folder that the user named: the store itself lives in its
    `jetstream` folder.  `max_memory`/`max_storage` of 0 are derived from the machine.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    proxy_protocol: bool = False
    """A proxy may send the client's address at the beginning of a connection."""
    client_advertise: str = ""
    """The address that clients are advertised instead of `host` and `port`."""
    server_name: str = ""
    config_file: Path | None = None
    config_digest: str = ""
    config_warnings: tuple[str, ...] = ()
    """Values of the configuration file that are accepted but probably not meant so."""
    jetstream: bool = False
    store_dir: Path | None = None
    sync: SyncPolicy = "always"
    encryption: EncryptionOptions = EncryptionOptions()
    max_memory: int = 0
    max_storage: int = 0
    storage_derived: bool = False
    """`max_storage` is derived from the machine, not configured."""
    domain: str = ""
    no_jetstream_strict: bool = False
    """Unknown fields of requests are ignored."""
    jetstream_limits: ServerJetStreamLimits = msgspec.field(default_factory=ServerJetStreamLimits)
    archive_version: int = 2
    user: str = ""
    password: str = ""
    token: str = ""
    users: tuple[User, ...] = ()
    no_auth_user: str = ""
    proxy_required: bool = False
    """The single user, or whoever has the token, comes through a trusted proxy."""
    trusted_proxies: tuple[str, ...] = ()
    """Public keys of the proxies that may pass clients on."""
    accounts: tuple[AccountConfig, ...] = ()
    system_account: str = ""
    """The account of the server's own requests and events; empty: `$SYS`."""
    no_system_account: bool = False
    """No such account, unless one is named or JetStream needs it."""
    operator: OperatorOptions | None = None
    """Users, accounts and permissions come from JWTs."""
    auth_callout: CalloutSettings | None = None
    """A service that decides about most logins; an operator's accounts name theirs in their JWTs."""
    auth_timeout_s: float = 0.0
    """Time limit of a client's CONNECT, and of a callout; 0: as in `login_timeout_s`."""
    http_host: str = ""
    """Empty: as for clients."""
    http_port: int = 0
    """The port of monitoring; 0: none, -1: any free port."""
    https_port: int = 0
    """The port of monitoring under TLS instead."""
    http_base_path: str = ""
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    """Clients may stay in clear on the TLS listener."""
    ocsp: OcspOptions | None = None
    """None: certificates that demand a staple get one."""
    ocsp_cache: OcspCacheOptions | None = None
    """None: the default, where the other side's certificates are checked."""
    websocket: WebSocketOptions | None = None
    leafnodes: LeafNodesOptions | None = None
    default_js_domain: tuple[tuple[str, str], ...] = ()
    """Accounts that use the JetStream of another server's domain; with an empty name, both are one."""
    server_tags: tuple[str, ...] = ()
    server_metadata: tuple[tuple[str, str], ...] = ()
    unserved: tuple[str, ...] = ()
    """Keys of the configuration file for features that this server does not have; logged at the start."""
    max_payload: int = MAX_PAYLOAD_BYTES
    max_pending: int = MAX_PENDING_BYTES
    max_control_line: int = MAX_CONTROL_LINE_BYTES
    max_connections: int = 0
    """Clients at the same time; 0: as many as the process has file descriptors for, below 0: none."""
    max_subscriptions: int = 0
    """Most subscriptions of one connection; 0: any number."""
    max_subscription_tokens: int = 0
    """Tokens of a subscription's subject; 0: any number."""
    max_closed_clients: int = MAX_CLOSED_CLIENTS
    ping_interval_s: float = PING_INTERVAL_S
    ping_max: int = PING_MAX
    write_deadline_s: float = WRITE_DEADLINE_S
    write_timeout: WriteTimeout = ""
    lame_duck_duration_s: float = LAME_DUCK_DURATION_S
    lame_duck_grace_s: float = LAME_DUCK_GRACE_S
    no_header_support: bool = False
    connect_error_reports: int = ERROR_REPORTS
    """Failed connection attempts of a remote for each one that is logged as an error."""
    reconnect_error_reports: int = RECONNECT_ERROR_REPORTS
    log_file: Path | None = None
    log_time: bool = True
    log_utc: bool = False
    log_format: str = "text"
    """One of LOG_FORMATS."""
    syslog: bool = False
    """Whether the log goes to the syslog of this machine, unless there is a log file."""
    remote_syslog: str = ""
    """URL of a syslog: udp://HOST:PORT, tcp://HOST:PORT or unix:PATH."""
    log_size_limit: int = 0
    """Bytes of a log file after which the next one begins; 0: any number."""
    log_max_files: int = 0
    """Log files that are kept, the one in use among them; 0: all."""
    debug: bool = False
    trace: bool = False
    max_traced_bytes: int = 0
    """Bytes of a payload in a trace line; 0: a useful number."""
    pid_file: Path | None = None
    ports_file_dir: Path | None = None

    @property
    def asks_services(self) -> bool:
        """True if a service may be asked about logins: then the server has its own keys."""
        return self.auth_callout is not None or self.operator is not None

    @property
    def login_timeout_s(self) -> float:
        """Time limit of a client's CONNECT; under TLS the default leaves time for the handshake."""
        if self.auth_timeout_s > 0:
            return self.auth_timeout_s
        return self.tls.timeout_s + 1 if self.tls is not None else AUTH_TIMEOUT_S

    @property
    def tls_blocks(self) -> dict[str, TlsOptions]:
        websocket, leafnodes = self.websocket, self.leafnodes
        blocks = {
            "clients": self.tls,
            "websocket": websocket.tls if websocket is not None else None,
            "leafnodes": leafnodes.tls if leafnodes is not None else None,
        }
        return {kind: tls for kind, tls in blocks.items() if tls is not None}

    @property
    def has_tls(self) -> bool:
        return bool(self.tls_blocks) or bool(self.leafnodes is not None and self.leafnodes.remotes)

    @property
    def checks_peers(self) -> bool:
        remotes = self.leafnodes.remotes if self.leafnodes is not None else ()
        blocks = (*self.tls_blocks.values(), *(remote.tls for remote in remotes))
        return any(tls is not None and tls.checks_peers for tls in blocks)

    @property
    def monitoring_host(self) -> str:
        return self.http_host or self.host

    @property
    def store_path(self) -> Path:
        """The folder of the store: `jetstream` under the named folder, or under the system's temporary one."""
        if self.store_dir is not None:
            return self.store_dir / "jetstream"
        from pathlib import Path
        from tempfile import gettempdir

        return Path(gettempdir()) / "nats" / "jetstream"

    def at(self, host: str, port: int) -> ServerOptions:
        return replace(self, host=host, port=port)


DEFAULT_LEAF_PORT: Final = 7422
"""Default port of a remote's url. Source: nats-server, DEFAULT_LEAFNODE_PORT."""
RECONNECT_S: Final = 1.0
FIRST_INFO_S: Final = 1.0
DIAL_TIMEOUT_S: Final = 1.0


class LeafProxyOptions(Confidential, frozen=True):
    UNSHOWN: ClassVar = ("password",)

    host: str
    port: int
    secure: bool = False
    """It is reached over TLS."""
    username: str = ""
    password: str = ""
    timeout_s: float = 0.0
    """Time limit of the connection, and of the answer; 0: the dial's limit."""
    tls: TlsOptions | None = None


class LeafRemoteOptions(Confidential, frozen=True):
    UNSHOWN: ClassVar = ("nkey",)

    urls: tuple[ServerUrl, ...] = ()
    account: str = "$G"
    creds: Path | None = None
    nkey: str = ""
    """A user's seed."""
    tls: TlsOptions | None = None
    proxy: LeafProxyOptions | None = None
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    hub: bool = False
    ws_compression: bool = False
    ws_no_masking: bool = False
    no_randomize: bool = False
    first_info_timeout_s: float = FIRST_INFO_S
    dial_timeout_s: float = 0.0
    """0: as for all remotes."""
    disabled: bool = False
    ignore_discovered_servers: bool = False
    isolate: bool = False
    request_isolation: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        return (self.urls, self.account, self.creds, self.nkey)

    @property
    def label(self) -> str:
        urls = " ".join(f'"{url.label}"' for url in self.urls)
        secret = f', credentials="{self.creds}"' if self.creds is not None else ""
        secret += ', nkey="[REDACTED]"' if self.nkey else ""
        return f'urls=[{urls}], account="{self.account}"{secret}'


class LeafNodesOptions(msgspec.Struct, frozen=True):
    """The listener, where `port` is not 0, and the remotes."""

    host: str = DEFAULT_HOST
    port: int = 0
    tls: TlsOptions | None = None
    users: tuple[User, ...] = ()
    """Users that may connect; empty: the users of the server."""
    account: str = ""
    """The account of leaf nodes that need no credentials."""
    proxy_required: bool = False
    """Every one of the users comes through a trusted proxy."""
    auth_timeout_s: float = 0.0
    """Time limit of a server's CONNECT; 0: as in `login_timeout_s`."""
    advertise: str = ""
    no_advertise: bool = False
    min_version: str = ""
    isolate: bool = False
    write_deadline_s: float = 0.0
    """0: as for clients."""
    write_timeout: WriteTimeout = ""
    reconnect_s: float = RECONNECT_S
    dial_timeout_s: float = DIAL_TIMEOUT_S
    remotes: tuple[LeafRemoteOptions, ...] = ()

    @property
    def login_timeout_s(self) -> float:
        """Time limit of a server's CONNECT, its handshake included."""
        if self.auth_timeout_s > 0:
            return self.auth_timeout_s
        return self.tls.timeout_s + 1 if self.tls is not None else AUTH_TIMEOUT_S
