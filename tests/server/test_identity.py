import base64

import nkeys

from natsctl.server.identity import crc16, server_id


def test_a_server_id_is_spelled_like_a_public_server_key() -> None:
    seed = bytes(range(32))
    name = server_id(seed)
    assert len(name) == 56
    assert name.startswith("N")
    raw = base64.b32decode(name)
    assert raw[1:33] == seed
    assert int.from_bytes(raw[33:], "little") == nkeys.crc16(bytearray(raw[:33]))


def test_the_check_value_is_the_published_one() -> None:
    assert crc16(b"123456789") == 0x31C3
