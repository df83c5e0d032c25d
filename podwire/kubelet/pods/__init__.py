"""Pod workers: one pod from its first sight until nothing of it is left, and the status that is reported."""
