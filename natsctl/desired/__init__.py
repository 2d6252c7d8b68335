"""Desired state: documents, their differences from an account, and the changes that remove them.

Documents are read into a `DocumentSet` (documents/), an account into a `LiveState` (live.py); planner.py compares the
two without I/O into a `Plan`, and apply/ carries it out.
"""
