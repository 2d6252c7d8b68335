"""What the system account can be asked: the subjects, without what answers them."""

from __future__ import annotations

from typing import Final

EVERYBODY: Final = "PING"
"""What stands for a server's id, or an account's name, where all are asked."""

SERVER_NAMES: Final = (
    "IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "PROFILEZ",
    "EXPVARZ", "IPQUEUESZ", "RAFTZ",
)  # fmt: skip
"""Asked on `$SYS.REQ.SERVER.PING.<name>` and `$SYS.REQ.SERVER.<id>.<name>`."""

OPERATION_NAMES: Final = ("KICK", "LDM", "RELOAD")
"""Asked on `$SYS.REQ.SERVER.<id>.<name>`."""

ACCOUNT_NAMES: Final = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
"""Asked on `$SYS.REQ.ACCOUNT.<account>.<name>`."""

USER_INFO: Final = "$SYS.REQ.USER.*.INFO"
"""Where nats-server has its own accounts ask for `$SYS.REQ.USER.INFO`; who asks there is nobody that it knows."""

DEBUG_SUBJECTS: Final = {"$SYS.REQ.ACCOUNT.NSUBS": "NSUBS", "$SYS.DEBUG.SUBSCRIBERS": "SUBSCRIBERS"}

OWN_SUBJECTS: Final = {
    "$SYS.REQ.ACCOUNT.PING.CONNZ": "CONNZ",
    "$SYS.REQ.SERVER.PING.CONNZ": "CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ": "STATZ",
}
"""What any account may ask, and is told of itself."""
