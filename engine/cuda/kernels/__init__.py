"""Triton kernels for NVIDIA GPUs: each module holds kernels, and beside each kernel the function that launches it.

Every function does the same as some layers of `engine/model/whisper.py`, which the tests compare it with.

The result of a row never depends on the other rows of the batch: no kernel divides a sum by the number of rows, and
every sum over weights or keys runs in a fixed order. A sequence therefore decodes to the same tokens alone and in a
batch.

Names in capitals are pointers (`X`, `KEYS`) and compile-time constants (`BLOCK`, `PDL`); the rest are numbers.
"""
