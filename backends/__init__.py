"""Implementations of the op contract, one folder per backend."""
