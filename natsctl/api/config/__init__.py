"""Normalisation and validation of stream and consumer configurations as a server does them, without I/O."""
