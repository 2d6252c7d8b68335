"""Expiry by age and TTL, delete markers, schedules."""
