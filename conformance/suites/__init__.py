"""One module per suite; each registers itself with `conformance.registry.suite`."""
