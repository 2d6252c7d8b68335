"""A server of either kind that is started from the text of a configuration file, without JetStream by flag.

`reload` exchanges the text; log lines are compared without process id and time. `Wire` is a connection of bare bytes.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from natsctl.testing.process import Kind, ServerProcess

PATIENCE_S: Final = 20.0
_LINE: Final = re.compile(r"^\[\d+\] \S+ \S+ (\[\w+\] .*)$", re.MULTILINE)
_RELOADED: Final = re.compile(r"Reloaded server configuration|Failed to reload server configuration|reload: ")


class ConfServer(ServerProcess):
    """One server; `monitoring` opens a monitoring port."""

    def __init__(self, folder: Path, kind: Kind, text: str, *flags: str, monitoring: bool = False) -> None:
        super().__init__(folder, kind, *flags)
        folder.mkdir(parents=True, exist_ok=True)
        self._head = f"ports_file_dir: {json.dumps(str(folder))}\n"
        self._head += "http: 127.0.0.1:-1\n" if monitoring else ""
        self.config = folder / "nats.conf"
        self._write(text)

    def _write(self, text: str) -> None:
        self.config.write_text(self._head + text)

    def _command(self) -> list[str]:
        start = super()._command()
        command = start[: start.index("-js")]
        return [*command, "-c", str(self.config), "-a", "127.0.0.1", "-p", "-1", *self.flags]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ports(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads((self.store_dir / f"nats-server_{self.pid}.ports").read_text())
        return found

    def monitor(self, page: str) -> Any:
        url = self.ports()["monitoring"][0]
        with urlopen(f"{url}/{page}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def lines(self) -> list[str]:
        """Return the log lines with their level, without process id and time."""
        return _LINE.findall(self.log())

    def await_line(self, pattern: str) -> str:
        """Return the first log line that `pattern` is found in; raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in self.lines():
                if re.search(pattern, line):
                    return line
            time.sleep(0.01)
        raise TimeoutError(f"no log line with {pattern}:\n{self.log()}")

    def reason(self, cid: int) -> str:
        """Return why a connection has ended, as connz shows it once it is among the closed ones."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for one in self.monitor(f"connz?cid={cid}&state=closed")["connections"]:
                return str(one["reason"])
            time.sleep(0.01)
        raise TimeoutError(f"connection {cid} is not closed")

    def reload(self, text: str) -> str:
        """Reload with another text, and return the log line that ended the reload."""
        self._write(text)
        before = len(self.lines())
        self._signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in self.lines()[before:]:
                if _RELOADED.search(line):
                    return line
            time.sleep(0.01)
        raise TimeoutError(f"no reload:\n{self.log()}")

    def _signal(self, number: signal.Signals) -> None:
        import os

        os.kill(self.pid, number)


class Wire:
    """A blocking connection of bare bytes; usable as a context manager."""

    def __init__(self, port: int, first: bytes = b"") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._buffer = b""
        if first:
            self.send(first)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def line(self) -> bytes:
        """Return the next line without its end, b"" at the end of the connection."""
        while b"\r\n" not in self._buffer:
            chunk = self._read()
            if not chunk:
                line, self._buffer = self._buffer, b""
                return line
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _read(self) -> bytes:
        try:
            return self.sock.recv(65536)
        except ConnectionResetError:
            return b""

    def rest(self) -> bytes:
        while chunk := self._read():
            self._buffer += chunk
        found, self._buffer = self._buffer, b""
        return found

    def info(self) -> dict[str, Any]:
        while line := self.line():
            if line.startswith(b"INFO "):
                found: dict[str, Any] = json.loads(line[5:])
                return found
        raise ConnectionError("closed before INFO")

    def connect(self, **options: Any) -> bytes:
        """Send CONNECT and PING, and return the first line that is no INFO."""
        text = json.dumps({"verbose": False, "pedantic": False, "protocol": 1, **options})
        self.send(f"CONNECT {text}\r\nPING\r\n".encode())
        while (line := self.line()).startswith(b"INFO "):
            pass
        return line
