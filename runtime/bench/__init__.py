"""Benchmarks of an engine: workloads, the run, what is made of it, and plots. `deepinfer bench` is their front."""
