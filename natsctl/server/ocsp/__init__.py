"""OCSP: staples of this server's certificates, and checks of the certificates of other sides (docs/adr/0033)."""
