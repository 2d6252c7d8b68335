"""Files as messages of a stream: what exports have written, and tables of others."""
