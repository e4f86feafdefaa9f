"""Events and accumulated responses, one module per protocol."""
