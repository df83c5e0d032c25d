"""The CNI plugin ptp; `plugin.py` has it."""
