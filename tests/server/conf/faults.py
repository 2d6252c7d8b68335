"""Small configuration files: what is wrong with each, and whether natsctl and nats-server accept it."""

from pathlib import Path

import yaml

NKEY = "UBEAOWSZPZZBUFLOFYDZTXS4YDCTETOG47VPDTOUMJIINDWFGIK52DYE"
ISSUER = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
FAULTS, AGREEMENT = (
    yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))
    for name in ("faults.yaml", "agreement.yaml")
)
IN_WORDS_OF_BOTH: dict[str, str] = FAULTS["in_words_of_both"]
OCSP: list[str] = FAULTS["ocsp"]
IN_OWN_WORDS: dict[str, str] = FAULTS["in_own_words"]
IN_OWN_WORDS_ALONE: dict[str, str] = FAULTS["in_own_words_alone"]
ACCEPTED: list[str] = AGREEMENT["accepted"]
REFUSED: list[str] = AGREEMENT["refused"]
ACCEPTED_HERE_ALONE: dict[str, str] = AGREEMENT["accepted_here_alone"]
REFUSED_HERE_ALONE: dict[str, str] = AGREEMENT["refused_here_alone"]
