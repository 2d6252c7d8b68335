"""Servers, asked through the system account."""
