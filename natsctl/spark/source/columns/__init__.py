"""What a row has: schemas, and Arrow columns made of messages."""
