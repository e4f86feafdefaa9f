"""The engine: request life cycle, planning, pools, sampling glue and the offline entry point.

Importing this package loads no torch; the modules that need it are `execute`, `sampler` and `llm`.
"""
