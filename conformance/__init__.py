"""The suite that decides whether a backend keeps the op contract."""
