"""The CNI plugin portmap; `plugin.py` has it."""
