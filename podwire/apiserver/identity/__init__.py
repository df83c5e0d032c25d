"""Authentication, authorization (RBAC), service-account tokens, reviews, and the certificate authority."""
