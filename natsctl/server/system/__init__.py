"""The system account: its events, requests and their answers."""
