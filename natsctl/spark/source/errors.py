"""The failures of the data source; each text names the stream, the range and what to do."""

from __future__ import annotations


class JetStreamSourceError(Exception):
    """A failure of the data source; `code` is how it is found in logs."""

    code = "JETSTREAM_SOURCE"

    def __init__(self, text: str) -> None:
        super().__init__(f"[{self.code}] {text}")
        self.text = text

    def __reduce__(self) -> tuple[type[JetStreamSourceError], tuple[str]]:
        return type(self), (self.text,)


class OptionError(JetStreamSourceError):
    """An option is unknown, missing, or has a value that it cannot have."""

    code = "JETSTREAM_OPTION"


class ServerUnreachableError(JetStreamSourceError):
    """No server answers, or the connection was lost for longer than `retryTimeout`."""

    code = "JETSTREAM_UNREACHABLE"


class SourceConnectionLostError(ServerUnreachableError):
    """A connection ended; another one may be opened."""


class NoResponseError(ServerUnreachableError):
    """An answer, or the next message, did not come in time."""

    code = "JETSTREAM_TIMEOUT"


class SourceNotAuthorisedError(JetStreamSourceError):
    """The server refuses the login, or a subject that is needed."""

    code = "JETSTREAM_NOT_AUTHORISED"


class ApiRefusedError(JetStreamSourceError):
    """JetStream refused a request; `err_code` is the contract's number."""

    code = "JETSTREAM_API"

    def __init__(self, text: str, err_code: int = 0) -> None:
        super().__init__(text)
        self.err_code = err_code

    def __reduce__(self) -> tuple[type[ApiRefusedError], tuple[str, int]]:  # type: ignore[override]  # one argument more
        return type(self), (self.text, self.err_code)


class StreamNotFoundError(JetStreamSourceError):
    """A stream does not exist, or a pattern fits none."""

    code = "JETSTREAM_STREAM_NOT_FOUND"


class ConsumerUnfitError(JetStreamSourceError):
    """A consumer that is to be read with acknowledgement does not exist, or cannot be read so."""

    code = "JETSTREAM_CONSUMER"


class DataLossError(JetStreamSourceError):
    """Messages to read were removed."""

    code = "JETSTREAM_DATA_LOSS"


class StreamRecreatedError(DataLossError):
    """A stream is not the one that the offsets are of: it was deleted and made again."""

    code = "JETSTREAM_STREAM_RECREATED"


class SequenceResetError(DataLossError):
    """A stream ends before where reading stood: an older backup was restored."""

    code = "JETSTREAM_SEQUENCE_WENT_BACK"


class PublishError(JetStreamSourceError):
    """A message was refused or not acknowledged in time."""

    code = "JETSTREAM_PUBLISH"


class BackupError(JetStreamSourceError):
    """A backup cannot be read: it is missing, damaged, or not a backup."""

    code = "JETSTREAM_BACKUP"
