"""ValidatingAdmissionPolicy: rules in CEL over what is written, executed after all else has been checked.

a policy says what holds, a binding where it is asked for and what follows when it does not hold
match (constraints, then conditions) → find the parameters → run the expressions → deny, warn, or note in the log
"""
