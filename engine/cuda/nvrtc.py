"""Compiles CUDA C++ with the compiler library that PyTorch for CUDA brings, and launches kernels.

Users need no CUDA toolkit for it: NVRTC is a dependency of PyTorch's packages, and the rest is the driver.
"""

import ctypes
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

_ALLOW_SHARED_BYTES = 8
"""The driver's number of the attribute that allows a kernel more shared memory."""
_MAX_SHARED_BYTES = 97
"""The driver's number of the attribute that says how much a device allows."""

TOGETHER = 2
"""All blocks of a launch run at the same time, so that they may wait for one another (a cooperative launch, in the
driver's words). They are no more than the device runs at a time."""
OVERLAPPING = 6
"""Blocks may begin before the previous kernel has ended, and wait for it themselves: `kernels/launch.py`."""


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute` of the driver."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("number", "padding", "value")),
        ("unused", ctypes.c_char * 60),
    ]

    def __init__(self, number: int, value: int) -> None:
        super().__init__(number, 0, value)


class _Launch(ctypes.Structure):
    """`CUlaunchConfig` of the driver."""

    _fields_ = [
        *((f"{what}_{axis}", ctypes.c_uint) for what in ("blocks", "threads") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("n_attributes", ctypes.c_uint),
    ]


class CudaError(Exception):
    """A kernel could not be compiled, loaded or launched."""


class Kernel:
    """A kernel that is loaded on one device."""

    def __init__(self, image: bytes, name: str, *, n_threads: int, shared_bytes: int) -> None:
        """Load the kernel on PyTorch's current device.

        Args:
            name: the kernel's name in it.

        Raises:
            CudaError: the driver refuses the kernel.
        """
        torch.cuda.current_stream().synchronize()  # the driver needs PyTorch's context
        self._driver = _driver()
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), image), f"load {name}")
        self._check(
            self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, name.encode()), f"find {name}"
        )
        self._check(
            self._driver.cuFuncSetAttribute(self._function, _ALLOW_SHARED_BYTES, shared_bytes),
            f"give {name} {shared_bytes} bytes of shared memory",
        )
        self._name = name
        self._block = (n_threads, 1, 1, shared_bytes)

    def launch(self, argument: ctypes.Structure, *, n_blocks: int, attribute: int) -> None:
        """Launch the kernel with one argument, a structure, on PyTorch's current stream.

        Args:
            attribute: `TOGETHER` or `OVERLAPPING`.

        Raises:
            CudaError: the driver refuses the launch.
        """
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        switched_on = _Attribute(attribute, 1)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        launch = _Launch(n_blocks, 1, 1, *self._block, stream, ctypes.pointer(switched_on), 1)
        launched = self._driver.cuLaunchKernelEx(ctypes.byref(launch), self._function, arguments, None)
        self._check(launched, f"launch {self._name}")

    def _check(self, code: int, attempt: str) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"could not {attempt}: the driver says {(text.value or b'unknown error').decode()}")


def max_shared_bytes() -> int:
    """The most shared memory that a block may have on the current device."""
    most = ctypes.c_int()
    code = _driver().cuDeviceGetAttribute(ctypes.byref(most), _MAX_SHARED_BYTES, torch.cuda.current_device())
    if code:
        raise CudaError(f"could not ask how much shared memory a block may have: the driver's error {code}")
    return most.value


def compile_cached(source: str, name: str, options: Sequence[str]) -> bytes:
    """Compile as `compile_source`, or take what an earlier process compiled, from Triton's cache of kernels."""
    from triton.runtime.cache import get_cache_manager

    version = f"{torch.version.cuda} {torch.cuda.get_device_capability()}"
    key = hashlib.sha256("\n".join((version, *options, source)).encode()).hexdigest()
    stored = get_cache_manager(key)
    path = stored.get_file(f"{name}.cubin")
    if path is not None:
        return Path(path).read_bytes()
    image = compile_source(source, name, options)
    stored.put(image, f"{name}.cubin", binary=True)
    return image


def compile_source(source: str, name: str, options: Sequence[str]) -> bytes:
    """Compile CUDA C++ for the current device.

    Args:
        source: the whole source; it can include nothing.
        name: what the compiler calls it in its messages.
        options: of the compiler, such as definitions.

    Raises:
        CudaError: there is no compiler, or it refuses the source.
    """
    major, minor = torch.cuda.get_device_capability()
    flags = [f"--gpu-architecture=sm_{major}{minor}", "--std=c++17", *options]
    library, program = _nvrtc(), ctypes.c_void_p()
    created = library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    if created:
        raise CudaError(f"could not compile {name}: NVRTC's error {created}")
    try:
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if library.nvrtcCompileProgram(program, len(flags), array):
            log = _read(library, program, "ProgramLog").decode().strip("\0 \n")
            raise CudaError(f"could not compile {name}: {log}")
        return _read(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, data)
    return data.raw


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(f"no driver: {error}") from error


@cache
def _nvrtc() -> Any:
    major = (torch.version.cuda or "").split(".")[0]
    name = f"libnvrtc.so.{major}"
    for path in (*_package_libraries(name), name):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise CudaError(f"expected {name} in NVIDIA's packages or among the system's libraries, found none")


def _package_libraries(name: str) -> Iterator[str]:
    """Find the folders in which packages of NVIDIA bring a library to PyTorch's wheels."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from map(str, sorted(Path(folder).glob(f"*/lib/{name}")))
