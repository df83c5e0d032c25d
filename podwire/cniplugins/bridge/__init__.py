"""The CNI plugin bridge; `plugin.py` has it."""
