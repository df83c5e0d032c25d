"""Control groups of version 1, 2 or both."""
