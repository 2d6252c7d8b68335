"""Desired state: what documents say an account shall have, how that differs from what there is, and how it gets there.

Documents are read into a `DocumentSet` (plan/documents), an account into a `LiveState` (plan/world.py); plan/planner
compares the two without I/O into a `Plan`, and plan/apply carries it out.
"""
