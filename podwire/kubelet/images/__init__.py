"""Images of containers: names, credentials and pulls with back-off."""
