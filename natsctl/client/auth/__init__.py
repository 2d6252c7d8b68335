"""Decentralised authentication: nkeys, JWTs of operators, accounts and users, and the store that nsc keeps them in."""
