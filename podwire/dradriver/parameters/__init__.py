"""Opaque parameters of classes and claims: read strictly, merged, validated; the admission policy from the same table."""
