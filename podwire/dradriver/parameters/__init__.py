"""Opaque parameters of classes and claims: read strictly, merged, validated; also as an admission policy."""
