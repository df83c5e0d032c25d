"""The CNI plugin host-device; `plugin.py` has it."""
