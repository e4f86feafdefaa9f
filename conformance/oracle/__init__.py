"""What results have to be: float64 oracles of the ops that are not exact, definitions of those that are.

One module per family, found by listing this package; `expected` holds what an oracle may say, `formats`, `formulas`,
`attention` and `sampling` the definitions. An oracle shares no code with a backend: what judges must not be judged.
"""
