"""Dead letters: messages that a consumer gave up or terminated, kept, listed, replayed and discarded."""
