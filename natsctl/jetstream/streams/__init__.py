"""Streams: publishing, limits, expiry, schedules, mirrors and sources."""
