"""The command line: one file per noun, the questions it asks and what it shows."""
