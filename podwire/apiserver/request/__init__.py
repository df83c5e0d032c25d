"""One request: its options, body and negotiated form, the verbs, the answer, endpoints that are not resources."""
