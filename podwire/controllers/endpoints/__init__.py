"""Addresses of Services: EndpointSlices, Endpoints, and slices that mirror Endpoints without a selector."""
