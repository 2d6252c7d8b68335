"""One small tree of exceptions, by who must act; each knows the exit code a command ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from natsctl.api.err_codes import ErrCode
from natsctl.api.exit_codes import ExitCode

if TYPE_CHECKING:
    from natsctl.api.catalogue import ApiError  # it imports msgspec, which not every command needs

NOT_FOUND_CODES: Final = frozenset(
    {
        ErrCode.CONSUMER_NOT_FOUND,
        ErrCode.NO_MESSAGE_FOUND,
        ErrCode.SEQUENCE_NOT_FOUND,
        ErrCode.STREAM_NOT_FOUND,
        ErrCode.STREAM_TEMPLATE_NOT_FOUND,
        ErrCode.CONSUMER_DOES_NOT_EXIST,
    }
)
CONFLICT_CODES: Final = frozenset(
    {
        ErrCode.CONSUMER_CREATE,
        ErrCode.CONSUMER_NAME_EXIST,
        ErrCode.STREAM_MIRROR_NOT_UPDATABLE,
        ErrCode.STREAM_NAME_EXIST,
        ErrCode.STREAM_SUBJECT_OVERLAP,
        ErrCode.STREAM_WRONG_LAST_MSG_ID,
        ErrCode.STREAM_WRONG_LAST_SEQUENCE,
        ErrCode.CONSUMER_EXISTING_ACTIVE,
        ErrCode.STREAM_NAME_EXIST_RESTORE_FAILED,
        ErrCode.CONSUMER_ALREADY_EXISTS,
        ErrCode.STREAM_DUPLICATE_MESSAGE_CONFLICT,
        ErrCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT,
    }
)
UNAVAILABLE_CODES: Final = frozenset({ErrCode.NO_ACCOUNT, ErrCode.NOT_ENABLED_FOR_ACCOUNT, ErrCode.NOT_ENABLED})


class NatsctlError(Exception):
    """Base of every failure natsctl reports; the text is for a person."""

    exit_code: ClassVar[int] = ExitCode.FAILED
    subject: str = ""
    """The request or message that failed, where there was one."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class UsageError(NatsctlError):
    """The user must change a flag, a file or a value."""

    exit_code = ExitCode.USAGE


class ApiResponseError(NatsctlError):
    """A server answered an API request with an error; `subject` is the request's."""

    def __init__(self, error: ApiError, subject: str = "", *, hint: str = "") -> None:
        super().__init__(error.description, hint=hint)
        self.error = error
        self.subject = subject

    @property
    def err_code(self) -> int:
        """Return the `err_code`, 0 from servers that send none."""
        return self.error.err_code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # by error, where the others are by class
        """Return the exit code of the design's table for this error."""
        return exit_code_of(self.error)


class UnreachableError(NatsctlError):
    """No server, no answer in time, or no JetStream there."""

    exit_code = ExitCode.UNREACHABLE


class NotAuthorisedError(NatsctlError):
    """The server refused the credentials or the subject."""

    exit_code = ExitCode.NOT_AUTHORISED


class NothingReceivedError(NatsctlError):
    """The wait ended without a message."""

    exit_code = ExitCode.NOTHING_RECEIVED


class ProtocolError(NatsctlError):
    """The other side sent what the protocol does not allow."""


class StorageError(NatsctlError):
    """A disk or a file failed or is damaged."""


def exit_code_of(error: ApiError) -> ExitCode:
    """Return the exit code for an API error, by `err_code` and, where a 2020 server sent none, by `code`."""
    if error.err_code in NOT_FOUND_CODES or (not error.err_code and error.code == 404):
        return ExitCode.NOT_FOUND
    if error.err_code in CONFLICT_CODES:
        return ExitCode.CONFLICT
    if error.err_code in UNAVAILABLE_CODES or (not error.err_code and error.code == 503):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED
