"""The versions that this server reports, to clients and to persons."""

from typing import Final

from natsctl import __version__
from natsctl.api.versions import SERVER_VERSION

PROTOCOL_VERSION: Final = SERVER_VERSION


def version_line() -> str:
    """Return the output of `-v`; the clients' test suites parse its beginning."""
    return f"nats-server: v{PROTOCOL_VERSION} (natsctl {__version__})"
