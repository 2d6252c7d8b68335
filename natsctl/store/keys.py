"""Keys of an encrypted store: the configured key, the file KEYS that it opens, and the streams of bytes made of them.

Each file is encrypted with its own key. That is derived from a random data key and from a
number that is drawn for each file; KEYS holds the data keys, encrypted and authenticated with what scrypt makes of the
configured key. So a wrong key is recognised before anything is written, and another configured key only needs another
KEYS. A store that was plain, or under another key or cipher, is converted: KEYS says so until every file is done.
Source: docs/adr/0031.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as Ciphering
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError, StoreKeyError
from natsctl.store.file_commit import NO_SPACE, replace_file

Cipher = Literal["chacha", "aes"]

PATH: Final = "KEYS"
COPY: Final = "KEYS.copy"
"""The same bytes again: without them nothing of a store can be read."""
FORMAT: Final = 1
SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 16
"""Length of the random number that a key is derived from: 2^64 draws are possible before two are likely to be equal."""
AEAD_NONCE_BYTES: Final = 12
SCRYPT_COST: Final = 1 << 15
"""scrypt's N, with r = 8: 32 MiB and about 0.1 s at each start."""
SCRYPT_MAX_COST: Final = 1 << 18
"""256 MiB: a file that asks for more is not taken."""
SCRYPT_R: Final = 8
_ONCE: Final = bytes(AEAD_NONCE_BYTES)
"""The nonce under a key that encrypts one text only."""


class DataKey:
    """A key that the keys of files follow from; it is never shown."""

    __slots__ = ("_secret", "cipher", "number")

    def __init__(self, number: int, cipher: Cipher, secret: bytes) -> None:
        self.number = number
        self.cipher = cipher
        self._secret = secret

    def derived(self, purpose: bytes, nonce: bytes) -> bytes:
        return hmac.digest(self._secret, purpose + b"\0" + nonce, "sha256")

    def stored(self) -> list[str]:
        return [self.cipher, self._secret.hex()]


class Keystream:
    """A stream of bytes, by place, that is laid over a file's: the same call encrypts and decrypts."""

    __slots__ = ("_cipher", "_key")

    def __init__(self, cipher: Cipher, key: bytes) -> None:
        self._cipher = cipher
        self._key = key

    def over(self, data: bytes | memoryview, offset: int) -> bytes:
        if self._cipher == "chacha":
            block, skip = divmod(offset, 64)
            chacha = algorithms.ChaCha20(self._key, block.to_bytes(8, "little") + bytes(8))
            worker = Ciphering(chacha, mode=None).encryptor()
        else:
            block, skip = divmod(offset, 16)
            worker = Ciphering(algorithms.AES(self._key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
        if skip:
            worker.update(bytes(skip))
        return worker.update(data)


def seal(cipher: Cipher, key: bytes, plain: bytes, beside: bytes, nonce: bytes = _ONCE) -> bytes:
    return bytes(_aead(cipher, key).encrypt(nonce, plain, beside))


def unseal(cipher: Cipher, key: bytes, sealed: bytes, beside: bytes, nonce: bytes = _ONCE) -> bytes | None:
    """Return the bytes passed to `seal`, or None if the key is different or something was altered."""
    try:
        return bytes(_aead(cipher, key).decrypt(nonce, sealed, beside))
    except (InvalidTag, ValueError):
        return None


def _aead(cipher: Cipher, key: bytes) -> Any:
    return ChaCha20Poly1305(key) if cipher == "chacha" else AESGCM(key)


class Keyring:
    """The data keys of a store, by number; the highest one is for new files."""

    def __init__(self, keys: dict[int, DataKey], converting: bool, plain: bool) -> None:
        self.keys = keys
        self.converting = converting
        """Whether files under other keys than the newest may be left."""
        self.plain = plain
        """Whether files that are not encrypted may be left."""

    @property
    def newest(self) -> DataKey:
        return self.keys[max(self.keys)]

    def add(self, cipher: Cipher, secret: bytes) -> None:
        """Add a data key for new files; the others are converted to it."""
        number = 1 + max(self.keys, default=0)
        self.keys[number] = DataKey(number, cipher, secret)
        self.converting = len(self.keys) > 1 or self.plain

    def finish(self) -> None:
        """Drop the keys that no file is under any more."""
        self.keys = {self.newest.number: self.newest}
        self.converting = self.plain = False

    def encode(self) -> bytes:
        keys = {str(number): key.stored() for number, key in self.keys.items()}
        return json.dumps({"keys": keys, "converting": self.converting, "plain": self.plain}).encode()


def _parse_keyring(data: bytes) -> Keyring:
    fields = json.loads(data)
    keys = {
        int(number): DataKey(int(number), cipher, bytes.fromhex(secret))
        for number, (cipher, secret) in fields["keys"].items()
    }
    return Keyring(keys, fields["converting"], fields["plain"])


class Envelope(NamedTuple):
    """The parts of KEYS: the encrypted keyring, and the parameters to decrypt it."""

    sealed: bytes
    beside: bytes
    cipher: Cipher
    cost: int
    salt: bytes
    nonce: bytes

    def opened(self, key: str) -> Keyring | None:
        stretched = _stretched(key, self.salt, self.cost)
        plain = unseal(self.cipher, stretched, self.sealed, self.beside, self.nonce)
        return _parse_keyring(plain) if plain is not None else None


def _parse_envelope(data: bytes) -> Envelope | None:
    """Return the parts of the file, or None if it is damaged or of a later version."""
    try:
        fields = json.loads(data)
        sealed, salt, nonce = (bytes.fromhex(fields.pop(name)) for name in ("keys", "salt", "nonce"))
        cipher, cost = fields["cipher"], fields["cost"]
        known = fields["format"] == FORMAT and cipher in ("chacha", "aes") and fields["kdf"] == "scrypt"
        if not known or not 1 < cost <= SCRYPT_MAX_COST or cost & (cost - 1):
            return None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Envelope(sealed, _beside(cipher, cost, salt, nonce), cipher, cost, salt, nonce)


def _beside(cipher: Cipher, cost: int, salt: bytes, nonce: bytes) -> bytes:
    """Return the plain part of the file; it is authenticated with the encrypted part."""
    fields: dict[str, object] = {"format": FORMAT, "cipher": cipher, "kdf": "scrypt", "cost": cost}
    return json.dumps(fields | {"salt": salt.hex(), "nonce": nonce.hex()}).encode()


class KeyFile:
    """The file KEYS with its copy, and the configured keys that open it.

    The copy is written after the file, and before any file of the store is encrypted with a data key that is new in
    it. So it may replace a damaged file, and one before its conversion.
    """

    def __init__(
        self,
        disk: Disk,
        key: str,
        prev_key: str,
        cipher: Cipher,
        draw: Callable[[int], bytes],
        log: Callable[[str], object],
        cost: int,
    ) -> None:
        """`draw` returns unpredictable random bytes; `cost` is scrypt's for a new file."""
        self._disk = disk
        self._key = key
        self._prev_key = prev_key
        self._cipher: Cipher = cipher
        self._draw = draw
        self._log = log
        self._cost = cost

    def open(self, is_encrypted: bool, is_new: bool) -> Keyring:
        """Return the data keys, drawn if missing for this cipher or key; nothing is written on failure.

        `is_encrypted` comes from FORMAT, `is_new` means that there is no store yet. Raises StoreKeyError,
        StoreDamagedError, OSError.
        """
        found = self._read()
        if found is None and is_encrypted:
            raise StoreDamagedError(f"{PATH} is missing from an encrypted store: without it nothing can be read")
        keyring, as_configured = found or (Keyring({}, False, not is_new), False)
        if not as_configured:
            keyring.add(self._cipher, self._draw(SECRET_BYTES))
            self.save(keyring)
        return keyring

    def save(self, keyring: Keyring) -> None:
        """Write the file and its copy, under the configured key, each in one step."""
        salt, nonce = self._draw(NONCE_BYTES), self._draw(AEAD_NONCE_BYTES)
        beside = _beside(self._cipher, self._cost, salt, nonce)
        sealed = seal(self._cipher, _stretched(self._key, salt, self._cost), keyring.encode(), beside, nonce)
        data = beside.removesuffix(b"}") + b', "keys": "%s"}\n' % sealed.hex().encode()
        replace_file(self._disk, PATH, data)
        replace_file(self._disk, COPY, data)

    def _read(self) -> tuple[Keyring, bool] | None:
        """Return the data keys, and whether they are under the configured key and cipher; None without a file."""
        images = {path: self._content(path) for path in (PATH, COPY) if self._disk.exists(path)}
        envelopes = {path: envelope for path, data in images.items() if (envelope := _parse_envelope(data)) is not None}
        for path, envelope in envelopes.items():
            for key in filter(None, (self._key, self._prev_key)):
                if (keyring := envelope.opened(key)) is not None:
                    self._make_equal(path, images, keyring.converting)
                    return keyring, key == self._key and keyring.newest.cipher == self._cipher
        if envelopes:
            raise StoreKeyError("unable to recover keys: the store is encrypted with another key")
        if images:
            raise StoreDamagedError(f"{PATH} is damaged, or of a later version: without it nothing can be read")
        return None

    def _content(self, path: str) -> bytes:
        file = self._disk.open_read(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def _make_equal(self, opened: str, images: dict[str, bytes], converting: bool) -> None:
        """Write the one of the two files that is missing, damaged or older; lack of space may postpone it."""
        if opened == COPY:
            self._log(f"{PATH} is damaged or missing, and is restored from {COPY}")
        for path in (PATH, COPY):
            if images.get(path) != images[opened]:
                try:
                    replace_file(self._disk, path, images[opened])
                except OSError as error:
                    if converting or error.errno not in NO_SPACE:
                        raise


def _stretched(key: str, salt: bytes, cost: int) -> bytes:
    room = 2 * 128 * cost * SCRYPT_R
    return hashlib.scrypt(
        key.encode(), salt=salt, n=cost, r=SCRYPT_R, p=1, maxmem=max(room, 1 << 25), dklen=SECRET_BYTES
    )
