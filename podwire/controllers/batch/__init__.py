"""Jobs and CronJobs: pure decisions, and the controllers that carry them out."""
