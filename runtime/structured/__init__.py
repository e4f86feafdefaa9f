"""Structured output: text that a schema, an expression or a grammar allows, and no other."""
