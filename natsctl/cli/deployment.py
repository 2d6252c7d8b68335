"""Files of a cluster of nats-servers: configurations, certificates, systemd units, a compose file, Helm values.

Each server's folder becomes /etc/nats on its machine; paths of certificates are relative to it, and nats-server
runs with it as the working directory. Passwords are random: hashed (bcrypt) in the configurations, in plain text only
in the contexts for clients and in the routes.
"""

from __future__ import annotations

import ipaddress
import json
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from natsctl.api.errors import UsageError
from natsctl.client.atomic_file import PRIVATE, atomic_write

CLIENT_PORT: Final = 4222
ROUTE_PORT: Final = 6222
MONITOR_PORT: Final = 8222
MOST_NODES: Final = 99
IMAGE: Final = "nats:2.15-alpine"
CONFIG_DIR: Final = "/etc/nats"
CERTIFICATE_DAYS: Final = 825
"""Validity of certificates: the longest that all clients accept for a server."""
AUTHORITY_DAYS: Final = 3650
HASH_COST: Final = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class ClusterServer:
    """A server and the host name or address where the others and clients reach it."""

    name: str
    host: str

    @property
    def is_address(self) -> bool:
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True

    @property
    def url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_members(text: str) -> list[ClusterServer]:
    """Return the servers of `a,b=10.0.0.2,c`; raises UsageError for wrong or repeated names, and fewer than two."""
    members = []
    for word in text.replace(",", " ").split():
        name, equals, host = word.partition("=")
        member = ClusterServer(name, host if equals else name)
        if not _NAME.fullmatch(name):
            raise UsageError(f"--nodes: expected a name of letters, digits, - and _, not {name!r}")
        if not (member.is_address or _HOST.fullmatch(member.host) or (member.host == name)):
            raise UsageError(f"--nodes: {name}: expected a host name or an IP address, not {member.host!r}")
        members.append(member)
    for what, words in (("name", [one.name for one in members]), ("host", [one.host for one in members])):
        if twice := next((word for word in words if words.count(word) > 1), ""):
            raise UsageError(f"--nodes: the {what} {twice} is there twice")
    if not 2 <= len(members) <= MOST_NODES:
        raise UsageError(
            f"--nodes: expected 2 to {MOST_NODES} servers, as in a,b,c", hint="three survive the loss of one"
        )
    return members


@dataclass
class Deployment:
    """A cluster to be; `paths` are the files that `write` makes."""

    name: str
    members: list[ClusterServer]
    tls: bool = True
    store_dir: str = "/var/lib/nats"
    binary: str = "/usr/bin/nats-server"
    max_file_bytes: int = 10 << 30
    max_memory_bytes: int = 1 << 30
    password: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    system_password: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    route_password: str = field(default_factory=lambda: secrets.token_urlsafe(18))

    @property
    def has_compose(self) -> bool:
        """Return whether containers can find each other: by names, not by addresses."""
        return not any(member.is_address for member in self.members)

    def paths(self) -> list[str]:
        found = ["README.md"]
        if self.tls:
            found += ["ca.pem", "ca-key.pem"]
        for member in self.members:
            found += [f"{member.name}/nats.conf", f"{member.name}/nats-server.service"]
            if self.tls:
                found += [f"{member.name}/tls/{name}" for name in ("ca.pem", "server.pem", "server-key.pem")]
        found += ["compose.yaml"] if self.has_compose else []
        return [*found, "helm-values.yaml", *(f"contexts/{name}.json" for name in (self.name, f"{self.name}-system"))]

    def write(self, out: Path) -> None:
        hashes = {word: _hashed(word) for word in (self.password, self.system_password)}
        texts = {"README.md": self._readme(), "helm-values.yaml": self._helm(hashes), **self._context_files(out)}
        if self.has_compose:
            texts["compose.yaml"] = self._compose()
        for member in self.members:
            texts[f"{member.name}/nats.conf"] = self._config(member, hashes)
            texts[f"{member.name}/nats-server.service"] = self._unit(member)
        for path, text in texts.items():
            _write(out / path, text.encode(), private=not path.endswith((".service", "README.md", "compose.yaml")))
        if self.tls:
            self._write_certificates(out)

    def _config(self, member: ClusterServer, hashes: dict[str, str]) -> str:
        routes = "\n".join(
            f'    "nats://route:{self.route_password}@{one.url_host}:{ROUTE_PORT}"' for one in self.members
        )
        tls = 'tls {{\n  cert_file: "tls/server.pem"\n  key_file: "tls/server-key.pem"\n  ca_file: "tls/ca.pem"{}\n}}'
        client_tls = f"\n{tls.format('')}\n" if self.tls else ""
        route_tls = ("\n" + tls.format("\n  verify: true")).replace("\n", "\n  ") if self.tls else ""
        return f"""# Server {member.name} of the cluster {self.name}.
# This folder is {CONFIG_DIR} of its machine, and the working directory of nats-server.
server_name: {json.dumps(member.name)}
listen: "0.0.0.0:{CLIENT_PORT}"

# Monitoring for this machine only: /healthz, /varz, /jsz. Put 0.0.0.0 here for a Prometheus on another one.
http: "127.0.0.1:{MONITOR_PORT}"

jetstream {{
  store_dir: {json.dumps(self.store_dir)}
  max_file_store: {self.max_file_bytes}
  max_memory_store: {self.max_memory_bytes}
}}
{client_tls}
cluster {{
  name: {json.dumps(self.name)}
  listen: "0.0.0.0:{ROUTE_PORT}"
  authorization {{ user: route, password: {json.dumps(self.route_password)} }}
  routes: [
{routes}
  ]{route_tls}
}}

# bcrypt hashes: natsctl server passwd makes others.
accounts {{
  SYS {{ users: [{{ user: system, password: "{hashes[self.system_password]}" }}] }}
  APP {{
    jetstream: enabled
    users: [{{ user: app, password: "{hashes[self.password]}" }}]
  }}
}}
system_account: SYS
"""

    def _unit(self, member: ClusterServer) -> str:
        return f"""[Unit]
Description=NATS server {member.name} of the cluster {self.name}
Documentation=https://docs.nats.io
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
User=nats
Group=nats
WorkingDirectory={CONFIG_DIR}
ExecStart={self.binary} -c {CONFIG_DIR}/nats.conf
ExecReload=/bin/kill -s HUP $MAINPID
# Lame duck mode: clients are sent to other servers before this one ends.
KillSignal=SIGUSR2
TimeoutStopSec=150
Restart=on-failure
RestartSec=2
LimitNOFILE=800000
ReadWritePaths={self.store_dir}
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true
NoNewPrivileges=true

[Install]
WantedBy=multi-user.target
"""

    def _compose(self) -> str:
        import yaml

        services: dict[str, Any] = {}
        for index, member in enumerate(self.members):
            services[member.name] = {
                "image": IMAGE,
                "hostname": member.name,
                "command": ["-c", f"{CONFIG_DIR}/nats.conf"],
                "working_dir": CONFIG_DIR,
                "ports": [f"{CLIENT_PORT + index}:{CLIENT_PORT}"],
                "volumes": [f"./{member.name}:{CONFIG_DIR}:ro", f"{member.name}-data:{self.store_dir}"],
                "networks": {"nats": {"aliases": [member.host]}},
                "healthcheck": {
                    "test": ["CMD", "wget", "-q", "-O", "-", f"http://127.0.0.1:{MONITOR_PORT}/healthz"],
                    "interval": "10s",
                    "start_period": "30s",
                },
                "stop_signal": "SIGUSR2",
                "stop_grace_period": "150s",
                "restart": "unless-stopped",
            }
        volumes: dict[str, Any] = {f"{member.name}-data": {} for member in self.members}
        document = {"name": self.name.lower(), "services": services, "networks": {"nats": {}}, "volumes": volumes}
        head = f"# The cluster {self.name} on one machine: docker compose up -d\n"
        return head + yaml.safe_dump(document, sort_keys=False)

    @property
    def _kubernetes_name(self) -> str:
        """Return the name as Kubernetes takes it: small letters, digits and hyphens."""
        return re.sub("[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def _helm(self, hashes: dict[str, str]) -> str:
        import yaml

        secret = {"enabled": True, "secretName": f"{self._kubernetes_name}-tls"}
        users = {"system": hashes[self.system_password], "app": hashes[self.password]}
        login = {name: [{"user": name, "password": word}] for name, word in users.items()}
        cluster: dict[str, Any] = {
            "enabled": True,
            "replicas": len(self.members),
            "routeURLs": {"user": "route", "password": self.route_password},
            "merge": {"name": self.name},
        }
        server: dict[str, Any] = {"port": CLIENT_PORT}
        document: dict[str, Any] = {}
        if self.tls:
            cluster["tls"] = {**secret, "merge": {"verify": True}}
            server["tls"] = secret
            document["tlsCA"] = dict(secret)  # the same object would be written as a reference
        document["config"] = {
            "cluster": cluster,
            "jetstream": {
                "enabled": True,
                "fileStore": {"pvc": {"size": _quantity(self.max_file_bytes)}},
                "memoryStore": {"enabled": True, "maxSize": _quantity(self.max_memory_bytes)},
            },
            "nats": server,
            "monitor": {"enabled": True, "port": MONITOR_PORT},
            "merge": {
                "accounts": {
                    "SYS": {"users": login["system"]},
                    "APP": {"jetstream": "enabled", "users": login["app"]},
                },
                "system_account": "SYS",
            },
        }
        document["container"] = {"image": {"tag": IMAGE.partition(":")[2]}}
        spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        document["podTemplate"] = {"topologySpreadConstraints": {"kubernetes.io/hostname": spread}}
        head = f"# helm install {self._kubernetes_name} nats/nats -f helm-values.yaml\n"
        if self.tls:
            head += f"# The secret {secret['secretName']} has tls.crt, tls.key and ca.crt, as cert-manager makes it.\n"
        return head + yaml.safe_dump(document, sort_keys=False)

    def _context_files(self, out: Path) -> dict[str, str]:
        urls = ",".join(f"{'tls' if self.tls else 'nats'}://{member.url_host}:{CLIENT_PORT}" for member in self.members)
        common = {"description": f"cluster {self.name}", "url": urls}
        if self.tls:
            common["ca"] = str(out / "ca.pem")
        logins = {self.name: ("app", self.password), f"{self.name}-system": ("system", self.system_password)}
        return {
            f"contexts/{name}.json": json.dumps({**common, "user": user, "password": password}, indent=2) + "\n"
            for name, (user, password) in logins.items()
        }

    def _write_certificates(self, out: Path) -> None:
        """Make an authority, and a certificate for each server: its name, its host and this machine's."""
        import tempfile

        from natsctl.testing.certificates import Authority

        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(Path(folder), "ca", AUTHORITY_DAYS)
            _write(out / "ca.pem", authority.cert.read_bytes())
            _write(out / "ca-key.pem", authority.key_pem(), private=True)
            for member in self.members:
                dns = [name for name in dict.fromkeys((member.name, member.host, "localhost")) if _HOST.fullmatch(name)]
                addresses = ["127.0.0.1"]
                if member.is_address:
                    addresses.append(member.host)
                    dns = [name for name in dns if name != member.host]
                issued = authority.issue(member.name, dns=dns, addresses=addresses, days=CERTIFICATE_DAYS)
                tls = out / member.name / "tls"
                _write(tls / "ca.pem", authority.cert.read_bytes())
                _write(tls / "server.pem", issued.cert.read_bytes())
                _write(tls / "server-key.pem", issued.key.read_bytes(), private=True)

    def _readme(self) -> str:
        first = self.members[0].name
        folders = ", ".join(f"`{member.name}/`" for member in self.members)
        compose = (
            "* **Containers on one machine**: `docker compose up -d` in this folder.\n" if self.has_compose else ""
        )
        keys = (
            f"`ca-key.pem` signs certificates of further servers: keep it apart. Certificates are valid for"
            f" {CERTIFICATE_DAYS} days.\n"
            if self.tls
            else "Connections are not encrypted: for a private network only.\n"
        )
        return f"""# Cluster {self.name}

Servers: {folders}. Check a configuration: `cd {first} && nats-server -t -c nats.conf`.

* **systemd**: copy a server's folder to {CONFIG_DIR} of its machine, owned by the user `nats`; make {self.store_dir}
  for it; put `nats-server.service` into /etc/systemd/system; `systemctl enable --now nats-server`.
{compose}* **Kubernetes**: `helm repo add nats https://nats-io.github.io/k8s/helm/charts/`,
  `helm install {self._kubernetes_name} nats/nats -f helm-values.yaml`.

Clients: `natsctl --context contexts/{self.name}.json account info`; operators:
`natsctl --context contexts/{self.name}-system.json server list`. Ports: {CLIENT_PORT} for clients, {ROUTE_PORT} between
the servers, {MONITOR_PORT} for monitoring.

{keys}"""


def _hashed(word: str) -> str:
    import bcrypt

    return bcrypt.hashpw(word.encode(), bcrypt.gensalt(HASH_COST, prefix=b"2a")).decode()


def _quantity(size: int) -> str:
    for unit, bytes_ in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size % bytes_ == 0:
            return f"{size // bytes_}{unit}"
    return str(size)


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, PRIVATE if private else None) as file:
        file.write(content)
