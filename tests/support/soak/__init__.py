"""A soak: many good clients on one server, among them some that do everything wrong, and the memory it takes."""
