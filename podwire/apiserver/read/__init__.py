"""get, list and watch; selectors; informers that follow the store inside the server."""
