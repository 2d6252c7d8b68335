"""Keys of an encrypted store: the configured key, the file KEYS that it opens, and the streams of bytes made from them.

A file's bytes are encrypted with a key of their own. It follows from a data key, which is drawn at random, and from a
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
from typing import Any, Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as Ciphering
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from natsctl.store.disk import Disk
from natsctl.store.errors import StoreDamagedError, StoreKeyError
from natsctl.store.file_commit import replace_file

Cipher = Literal["chacha", "aes"]

PATH: Final = "KEYS"
FORMAT: Final = 1
SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 16
"""Length of the random number from which a key follows: 2^64 of them may be drawn before two are likely to be equal."""
AEAD_NONCE_BYTES: Final = 12
SCRYPT_COST: Final = 1 << 15
"""scrypt's N, with r = 8: 32 MiB and about 0.1 s at each start."""
SCRYPT_MAX_COST: Final = 1 << 20
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
        """Return the key for one purpose and one random number."""
        return hmac.digest(self._secret, purpose + b"\0" + nonce, "sha256")

    def stored(self) -> list[str]:
        """Return the fields that KEYS holds encrypted."""
        return [self.cipher, self._secret.hex()]


class Keystream:
    """A stream of bytes, by place, that is laid over a file's: the same call encrypts and decrypts."""

    __slots__ = ("_cipher", "_key")

    def __init__(self, cipher: Cipher, key: bytes) -> None:
        self._cipher = cipher
        self._key = key

    def over(self, data: bytes | memoryview, offset: int) -> bytes:
        """Return `data`, which lies at `offset`, encrypted or decrypted."""
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
    """Return `plain` encrypted and authenticated together with `beside`."""
    return bytes(_aead(cipher, key).encrypt(nonce, plain, beside))


def unseal(cipher: Cipher, key: bytes, sealed: bytes, beside: bytes, nonce: bytes = _ONCE) -> bytes | None:
    """Return the bytes that `seal` was given, None where the key is another one or something was altered."""
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
        """Return the key of new files."""
        return self.keys[max(self.keys)]

    def add(self, cipher: Cipher, secret: bytes) -> None:
        """Add a data key for new files, to which the others are to be converted."""
        number = 1 + max(self.keys, default=0)
        self.keys[number] = DataKey(number, cipher, secret)
        self.converting = len(self.keys) > 1 or self.plain

    def finish(self) -> None:
        """Drop the keys that no file is under any more."""
        self.keys = {self.newest.number: self.newest}
        self.converting = self.plain = False

    def encode(self) -> bytes:
        """Return what KEYS encrypts."""
        keys = {str(number): key.stored() for number, key in self.keys.items()}
        return json.dumps({"keys": keys, "converting": self.converting, "plain": self.plain}).encode()


def _parse_keyring(data: bytes) -> Keyring:
    fields = json.loads(data)
    keys = {
        int(number): DataKey(int(number), cipher, bytes.fromhex(secret))
        for number, (cipher, secret) in fields["keys"].items()
    }
    return Keyring(keys, fields["converting"], fields["plain"])


class KeyFile:
    """The file KEYS, and the configured keys that open it."""

    def __init__(
        self, disk: Disk, key: str, prev_key: str, cipher: Cipher, draw: Callable[[int], bytes], cost: int
    ) -> None:
        """`draw` returns random bytes, which must be unpredictable; `cost` is scrypt's for a new file."""
        self._disk = disk
        self._key = key
        self._prev_key = prev_key
        self._cipher: Cipher = cipher
        self._draw = draw
        self._cost = cost

    def open(self, is_encrypted: bool, is_new: bool) -> Keyring:
        """Return the data keys, drawn where there is none for this cipher or key; nothing is written where this fails.

        `is_encrypted` is FORMAT's word on the store, `is_new` says that there is none yet. Raises StoreKeyError,
        StoreDamagedError, OSError.
        """
        if not self._disk.exists(PATH):
            if is_encrypted:
                raise StoreDamagedError(f"{PATH} is missing from an encrypted store: without it nothing can be read")
            keyring, as_configured = Keyring({}, False, not is_new), False
        else:
            keyring, as_configured = self._read()
        if not as_configured:
            keyring.add(self._cipher, self._draw(SECRET_BYTES))
            self.save(keyring)
        return keyring

    def save(self, keyring: Keyring) -> None:
        """Write the file, under the configured key, in one step."""
        salt, nonce = self._draw(NONCE_BYTES), self._draw(AEAD_NONCE_BYTES)
        fields = {
            "format": FORMAT, "cipher": self._cipher, "kdf": "scrypt", "cost": self._cost, "salt": salt.hex(),
            "nonce": nonce.hex(),
        }  # fmt: skip
        beside = json.dumps(fields).encode()
        stretched = _stretched(self._key, salt, self._cost)
        sealed = seal(self._cipher, stretched, keyring.encode(), beside, nonce)
        replace_file(self._disk, PATH, json.dumps(fields | {"keys": sealed.hex()}).encode() + b"\n")

    def _read(self) -> tuple[Keyring, bool]:
        """Return the content of the file, and whether it is under the configured key and cipher."""
        file = self._disk.open_read(PATH)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        try:
            fields = json.loads(data)
            sealed, salt, nonce = (bytes.fromhex(fields[name]) for name in ("keys", "salt", "nonce"))
            cipher, cost = fields["cipher"], fields["cost"]
            known = fields["format"] == FORMAT and cipher in ("chacha", "aes") and fields["kdf"] == "scrypt"
            del fields["keys"]
        except (ValueError, TypeError, KeyError, AttributeError):
            known = False
        if not known or not (isinstance(cost, int) and 1 < cost <= SCRYPT_MAX_COST):
            raise StoreDamagedError(f"{PATH} is damaged, or of a later version: without it nothing can be read")
        beside = json.dumps(fields).encode()
        for key in filter(None, (self._key, self._prev_key)):
            plain = unseal(cipher, _stretched(key, salt, cost), sealed, beside, nonce)
            if plain is not None:
                keyring = _parse_keyring(plain)
                return keyring, key == self._key and keyring.newest.cipher == self._cipher
        raise StoreKeyError("unable to recover keys: the store is encrypted with another key")


def _stretched(key: str, salt: bytes, cost: int) -> bytes:
    """Return the key that KEYS is encrypted with."""
    room = 2 * 128 * cost * SCRYPT_R
    return hashlib.scrypt(
        key.encode(), salt=salt, n=cost, r=SCRYPT_R, p=1, maxmem=max(room, 1 << 25), dklen=SECRET_BYTES
    )
