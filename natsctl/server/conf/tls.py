"""The blocks `tls` of nats.conf: one for each kind of listener or remote."""

from __future__ import annotations

from pathlib import Path

from natsctl.server.conf.syntax import Item
from natsctl.server.conf.values import block_of, flag_of, text_of
from natsctl.server.options import TlsOptions


def tls_block(item: Item) -> TlsOptions:
    """Return what the block sets; raises ConfError."""
    paths: dict[str, Path] = {}
    verify = False
    for key, value in block_of(item).items():
        if key.lower() in ("cert_file", "key_file", "ca_file"):
            paths[key.lower()] = Path(text_of(value))
        elif key.lower() == "verify":
            verify = flag_of(value)
        else:
            raise value.fault(f"{key} of tls: not available in this version of natsctl server")
    if not {"cert_file", "key_file"} <= paths.keys():
        raise item.fault("tls needs cert_file and key_file")
    if verify and "ca_file" not in paths:
        raise item.fault("verify needs ca_file")
    return TlsOptions(paths["cert_file"], paths["key_file"], paths.get("ca_file"), verify)
