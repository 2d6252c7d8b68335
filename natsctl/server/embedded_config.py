"""What a user may say about the embedded server: `nats.conf` in the data folder, or the file of NATSCTL_SERVER_CONFIG.

The embedded server belongs to the commands of one user: where it listens, who may connect and where it keeps its data
is not for a file to say. What it is for is to be a leaf node of another server, with a name and a JetStream domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from natsctl.server.options import ServerOptions

VARIABLE: Final = "NATSCTL_SERVER_CONFIG"
FILE_NAME: Final = "nats.conf"
SERVED: Final = ("server_name", "jetstream", "leafnodes", "leaf")
SERVER_NAME: Final = "natsctl-embedded"


def embedded_options(data_dir: Path, environment: Mapping[str, str]) -> ServerOptions:
    """Return the options of the embedded server of a data folder, but for its address and token.

    Raises ConfError, OSError where the file that was named can not be read.
    """
    options = ServerOptions(host="127.0.0.1", port=-1, server_name=SERVER_NAME)
    named = environment.get(VARIABLE, "")
    path = Path(named).expanduser() if named else data_dir / FILE_NAME
    if named or path.is_file():
        from natsctl.server.conf.config import apply
        from natsctl.server.conf.syntax import load_file

        block = load_file(path, environment)
        for key, item in block.items():
            if key.lower() not in SERVED and key not in block.variables:
                raise item.fault(f"{key}: not for the embedded server; it reads server_name, jetstream and leafnodes")
        options = apply(block, options)
    return replace(options, host="127.0.0.1", port=-1, jetstream=True, store_dir=data_dir)
