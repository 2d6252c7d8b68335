"""Pipelines on Spark's own declarative pipelines.

Spark defines the language of their files, in Python and SQL. Added here are streams as views and sinks, one session for
many updates, faults with file and line, and the lag of each flow. Nothing here imports PySpark but what runs an update.
"""
