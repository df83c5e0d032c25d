"""A whole cluster on this machine: prepared, supervised, looked at, removed."""
