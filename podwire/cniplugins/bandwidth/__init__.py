"""The CNI plugin bandwidth; `plugin.py` has it."""
