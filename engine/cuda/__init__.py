"""The forward pass on NVIDIA GPUs: Triton kernels, CUDA graphs, FlashInfer, 8-bit products."""
