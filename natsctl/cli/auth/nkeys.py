"""Nkeys and NUIDs: `natsctl auth nkey` and `natsctl auth nuid`."""

from __future__ import annotations

import base64
import binascii
import sys
from pathlib import Path
from typing import Annotated, Final

from natsctl.api.errors import ConflictError, NatsctlError, UsageError, file_errors
from natsctl.api.jwt_token import Kind
from natsctl.api.model import Model
from natsctl.cli.auth.operators import read_file, read_key, write_private
from natsctl.cli.framework import output
from natsctl.cli.framework.flags import Json
from natsctl.cli.framework.parameters import Argument, Option
from natsctl.cli.framework.session import Session
from natsctl.cli.framework.verbs import Verb, verb
from natsctl.client.auth.keys import KEY_BYTES, KINDS, generate_key

_KINDS: Final[dict[str, Kind]] = {**{kind: kind for kind in KINDS}, "x25519": "curve"}
_NUID_LENGTH: Final = 22
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class GeneratedKey(Model, kw_only=True):
    """A new key; if a file was given, it has the seed."""

    kind: str
    key: str
    seed: str = ""
    file: str = ""


class PublicKey(Model, kw_only=True):
    """A public key, and its kind."""

    kind: str
    key: str


class Signature(Model, kw_only=True):
    """A signature in base 64 for URLs, and the public key that made it."""

    key: str
    signature: str


class Verified(Model, kw_only=True):
    """A signature that is good, and the public key that made it."""

    key: str
    verified: bool


class Nuid(Model, kw_only=True):
    """A new NUID."""

    nuid: str


KeyFile = Annotated[Path, Argument(metavar="KEY_FILE", help="the file with the key")]
DataFile = Annotated[Path, Argument(metavar="FILE", help="the file with the data")]
OutputFile = Annotated[Path | None, Option("--output", metavar="FILE", help="write it to a file [stdout]")]


def generate(
    session: Session,
    kind: Annotated[
        str, Argument(metavar="operator|account|user|server|cluster|curve|x25519", help="the kind of the key")
    ],
    public: Annotated[bool, Option("--public", help="write the public key, too")] = False,
    entropy: Annotated[
        Path | None, Option("--entropy", metavar="FILE", help="source of random bytes, such as /dev/urandom")
    ] = None,
    target: OutputFile = None,
    force: Annotated[bool, Option("--force", "-f", help="replace an existing file")] = False,
    json: Json = False,
) -> None:
    """Make a key, and write its seed: on stdout, or to a file that only you can read."""
    if kind.lower() not in _KINDS:
        raise UsageError(f"there is no kind of key {kind!r}", hint=f"the kinds are {', '.join(_KINDS)}")
    if target is not None and not force and target.exists():
        raise ConflictError(f"file {target} already exists", hint="--force replaces it")
    key = generate_key(_KINDS[kind.lower()], _entropy(entropy))
    text = f"{key.seed}\n{key.public}\n" if public else f"{key.seed}\n"
    if target is not None:
        write_private(session, target, text.encode(), "a new seed")
    if json:
        place = {"file": str(target)} if target is not None else {"seed": key.seed}
        output.emit_json({"kind": key.kind, "key": key.public, **place})
    elif target is None:
        sys.stdout.write(text)


def _entropy(source: Path | None) -> bytes:
    if source is None:
        return b""
    with file_errors(source, UsageError), source.open("rb") as file:
        found = file.read(KEY_BYTES)
    if len(found) < KEY_BYTES:
        raise UsageError(f"{source}: a key needs {KEY_BYTES} bytes, and it has {len(found)}")
    return found


def show(file: KeyFile, json: Json = False) -> None:
    """Show the public key of a file."""
    key = read_key(file)
    output.emit_json({"kind": key.kind, "key": key.public}) if json else output.emit(key.public)


def sign(file: DataFile, key_file: KeyFile, json: Json = False) -> None:
    """Sign a file, and write the signature in base 64 for URLs."""
    key = read_key(key_file)
    signature = base64.urlsafe_b64encode(key.sign(read_file(file))).rstrip(b"=").decode()
    output.emit_json({"key": key.public, "signature": signature}) if json else output.emit(signature)


def verify(
    file: DataFile,
    signature: Annotated[Path, Argument(metavar="SIGNATURE_FILE", help="the file with the signature")],
    key_file: KeyFile,
    json: Json = False,
) -> None:
    """Verify the signature of a file with a public key or a seed; ends with 1 if it is not valid."""
    key = read_key(key_file)
    text = read_file(signature).strip()
    try:
        raw = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except binascii.Error:
        raise NatsctlError(f"{signature}: this is not a signature in base 64") from None
    key.verify(read_file(file), raw)
    output.emit_json({"key": key.public, "verified": True}) if json else output.emit("Verified OK")


def seal(
    session: Session,
    file: DataFile,
    key_file: KeyFile,
    recipient: Annotated[str, Argument(metavar="RECIPIENT", help="the recipient's public curve key")],
    target: OutputFile = None,
    b64: Annotated[bool, Option("--b64/--no-b64", help="write base 64")] = True,
) -> None:
    """Encrypt a file with a curve key for the holder of another one."""
    sealed = read_key(key_file).seal(read_file(file), recipient)
    _write(session, base64.b64encode(sealed) if b64 else sealed, target, line=b64)


def unseal(
    session: Session,
    file: DataFile,
    key_file: KeyFile,
    sender: Annotated[str, Argument(metavar="SENDER", help="the sender's public curve key")],
    target: OutputFile = None,
    b64: Annotated[bool, Option("--b64/--no-b64", help="read base 64")] = True,
) -> None:
    """Decrypt a file that was sealed for the holder of a curve key; on stdout a line end is added."""
    key, sealed = read_key(key_file), read_file(file)
    if b64:
        try:
            sealed = base64.b64decode(b"".join(sealed.split()), validate=True)
        except binascii.Error:
            raise NatsctlError(f"{file}: this is not base 64", hint="--no-b64 reads sealed bytes") from None
    _write(session, key.open(sealed, sender), target, line=True)


def _write(session: Session, content: bytes, target: Path | None, *, line: bool) -> None:
    if target is not None:
        write_private(session, target, content, f"{len(content)} bytes")
    else:
        output.emit_bytes(content + (b"\n" if line else b""))


def nuid(json: Json = False) -> None:
    """Make a NUID: 22 letters and digits that are unique."""
    import secrets

    made = "".join(secrets.choice(_DIGITS) for _ in range(_NUID_LENGTH))
    output.emit_json({"nuid": made}) if json else output.emit(made)


VERBS = (
    verb(
        "gen",
        generate,
        "cli.auth.nkeys:GeneratedKey",
        "natsctl auth nkey gen user --output user.nk",
        "natsctl auth nkey gen curve --public",
    ),
    verb("show", show, "cli.auth.nkeys:PublicKey", "natsctl auth nkey show user.nk"),
    verb("sign", sign, "cli.auth.nkeys:Signature", "natsctl auth nkey sign data.bin user.nk"),
    verb("verify", verify, "cli.auth.nkeys:Verified", "natsctl auth nkey verify data.bin data.sig user.nk"),
    Verb("seal, encrypt, enc", seal),
    Verb("unseal, open, decrypt, dec", unseal),
)

NUID_VERBS = (verb("gen", nuid, "cli.auth.nkeys:Nuid"),)
