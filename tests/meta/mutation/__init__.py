"""Kernels that are wrong in one named way, made from the reference: what the conformance suite must not let through."""
