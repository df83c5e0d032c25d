"""Images of containers: names, credentials, pulls with back-off, garbage collection."""
