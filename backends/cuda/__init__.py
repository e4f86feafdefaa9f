"""The CUDA backend: kernels for NVIDIA SM90 and SM100. None exist yet."""
