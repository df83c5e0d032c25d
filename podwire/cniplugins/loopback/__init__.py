"""The CNI plugin loopback; `plugin.py` has it."""
