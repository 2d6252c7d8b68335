"""Which messages of a backup are meant: by subject, time and sequence."""

from __future__ import annotations

from dataclasses import dataclass

from natsctl.api.archive.archive import ArchivedMessage
from natsctl.api.subjects import matches


@dataclass(frozen=True, slots=True)
class Pick:
    """What a message has to be; 0 and nothing mean any. Times and sequences include both ends."""

    subjects: tuple[str, ...] = ()
    since_ns: int = 0
    until_ns: int = 0
    first_seq: int = 0
    last_seq: int = 0

    def __call__(self, message: ArchivedMessage) -> bool:
        """Whether the message is meant."""
        if message.seq < self.first_seq or (self.last_seq and message.seq > self.last_seq):
            return False
        if message.ts_ns < self.since_ns or (self.until_ns and message.ts_ns > self.until_ns):
            return False
        if not self.subjects:
            return True
        subject = message.subject.decode("utf-8", "replace")
        return any(matches(pattern, subject) for pattern in self.subjects)
