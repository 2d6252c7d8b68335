"""Authentication and authorization of clients: credentials, users, permissions."""
