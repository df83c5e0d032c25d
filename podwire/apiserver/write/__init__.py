"""create, update, patch, apply and delete; who manages which field."""
