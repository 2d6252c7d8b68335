"""The command line: one file per noun, its questions and its output."""
