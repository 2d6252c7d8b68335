"""Clients over WebSocket: the upgrade, frames, and the connection."""
