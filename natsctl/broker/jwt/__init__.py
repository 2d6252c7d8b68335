"""Decentralised authentication: the JWTs of operators, accounts and users."""
