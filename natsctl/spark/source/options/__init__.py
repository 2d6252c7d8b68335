"""The options of a query, in one table, and the server that they mean."""
