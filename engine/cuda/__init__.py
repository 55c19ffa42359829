"""Forward passes for NVIDIA GPUs: fused kernels, CUDA graphs, attention over windows and products in 8 bits."""
