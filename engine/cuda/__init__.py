"""Forward passes for NVIDIA GPUs: fused kernels, CUDA graphs, FlashInfer and products in 8 bits."""
