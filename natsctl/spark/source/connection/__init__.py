"""A blocking connection to a server, its login, and JetStream's requests over it."""
