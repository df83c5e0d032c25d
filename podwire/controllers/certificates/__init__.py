"""CertificateSigningRequests: approved for kubelets, signed, and removed when they are old."""
