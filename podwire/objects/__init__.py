"""What rooms decide on: names, quantities, selectors, times. Imports nothing of ours."""
