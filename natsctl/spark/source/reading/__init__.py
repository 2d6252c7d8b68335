"""Batches and streaming queries: what is read, from where to where, what is lost."""
