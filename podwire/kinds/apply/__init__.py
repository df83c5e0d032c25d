"""Server-side apply: which fields of an object belong to whom, and what a configuration makes of an object."""
