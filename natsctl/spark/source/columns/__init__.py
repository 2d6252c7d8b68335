"""The columns of rows: schemas, and Arrow columns made of messages."""
