"""Queries over streams: their tables become views of Spark; the server itself answers what it counts already."""
