"""FlowSchema and PriorityLevelConfiguration: API priority and fairness."""
