"""The CNI plugin sbr; `plugin.py` has it."""
