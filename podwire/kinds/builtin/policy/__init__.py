"""The kind of policy."""
