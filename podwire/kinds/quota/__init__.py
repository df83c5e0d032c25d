"""ResourceQuota: what objects use, which quotas they count for, and whether these allow more. Pure."""
