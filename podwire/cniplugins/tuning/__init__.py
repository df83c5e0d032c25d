"""The CNI plugin tuning; `plugin.py` has it."""
