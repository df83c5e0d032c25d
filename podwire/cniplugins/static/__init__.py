"""The CNI plugin static; `plugin.py` has it."""
