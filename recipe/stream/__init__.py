"""The output side of the codec: the engine's text or token ids become deltas, and those the events of a protocol."""
