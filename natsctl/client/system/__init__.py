"""Requests to servers through the system account."""
