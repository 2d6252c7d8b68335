"""Pipelines on Spark's own declarative pipelines.

What a pipeline makes of what stands in its files, in Python and SQL, as Spark defines them. What is added here: streams
as views, streams as sinks, one session for many updates, faults with file and line, and how far behind each flow is.
Nothing here imports PySpark but what runs an update.
"""
