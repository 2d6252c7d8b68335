"""Migration of streams to another server: copied to a folder, cut over, verified and opened."""
