"""API objects as values: names, quantities, selectors, times. Imports nothing of podwire."""
