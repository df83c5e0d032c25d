"""The CNI plugin host-local; `plugin.py` has it."""
