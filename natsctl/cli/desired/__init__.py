"""Desired state: commands that read documents, compare them with an account, and make it so."""
