"""What a query may be told, in one table, and the server that it means."""
