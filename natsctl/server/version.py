"""The versions that this server reports, to clients and to persons."""

from typing import Final

from natsctl import __version__
from natsctl.api.versions import SERVER_VERSION

PROTOCOL_VERSION: Final = SERVER_VERSION


def version_line() -> str:
    """Return what `-v` prints; its beginning is what the clients' test suites parse."""
    return f"nats-server: v{PROTOCOL_VERSION} (natsctl {__version__})"
