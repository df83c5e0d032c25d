"""The kind of autoscaling."""
