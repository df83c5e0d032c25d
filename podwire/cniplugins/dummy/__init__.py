"""The CNI plugin dummy; `plugin.py` has it."""
