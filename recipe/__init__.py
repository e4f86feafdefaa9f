"""The protocol codec between chat requests and prompts or tokens. Imports no torch."""
