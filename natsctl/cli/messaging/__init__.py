"""Messages out and in: publish, request, subscribe."""
