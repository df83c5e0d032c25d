"""ValidatingAdmissionPolicy: CEL rules that run after all other checks.

A policy defines rules, a binding selects where they apply and what a violation causes. Per request: match (constraints,
then conditions) → find the parameters → run the expressions → deny, warn, or audit.
"""
