"""Explanations: why a consumer, stream, subject or message behaves as it does, from the reports of a server."""
