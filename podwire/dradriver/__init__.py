"""A node's network interfaces as devices that pods claim: published, prepared, attached, given back."""
