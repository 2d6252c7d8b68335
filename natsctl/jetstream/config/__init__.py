"""What configurations become, and which are refused."""
