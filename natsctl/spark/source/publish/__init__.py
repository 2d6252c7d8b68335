"""Publishing rows: Arrow batches become protocol lines; windows of them are sent, and every answer is awaited."""
