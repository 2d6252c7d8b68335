"""Queries over streams: what a query names becomes views, what the server knows already is answered without Spark."""
