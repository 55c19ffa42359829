"""The engine's settings: one frozen value, checked when it is made and passed down as an argument."""

from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]
EncoderDtype = Literal["auto", "fp8"]
CrossCache = Literal["auto", "int8", "states"]
AudioContext = Literal["auto", "interims", "full"]
Kernels = Literal["auto", "torch", "triton", "flashinfer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine is set up.

    Raises:
        ValueError: a value is out of range; the message names the field, what was expected and what came.
    """

    model: str = "tutti-base"
    """The embedded `tutti-base`, a folder, a file, or a name on the Hugging Face hub.

    Such as `openai/whisper-small`, in short `small`, or with a branch, tag or commit `openai/whisper-small@main`.
    """
    served_names: tuple[str, ...] = ()
    """The names that clients see and use. The first is shown; empty for the name of the model without its folder."""
    device: Device = "auto"
    """The device on which the model runs; `auto` is CUDA if there is any, else the CPU."""
    dtype: Dtype = "auto"
    """The type of weights and caches. float16 needs CUDA, int8 a CPU of the x86 family.

    `int8`: weights of matrix products in 8 bits, with a scale for each output and for each row that they multiply;
    caches and all else in float32. Where the processor has products in bfloat16, the encoder's attention is in it, and
    where it multiplies tiles (AMX), all of the encoder. `auto` is bfloat16 on CUDA. On the CPU it is int8 for
    checkpoints of the published sizes and float32 for smaller ones.
    """
    encoder_dtype: EncoderDtype = "auto"
    """The type of the encoder's matrix products.

    `auto`: the type of all others. `fp8`: faster and less exact; it needs a GPU of compute capability 8.9 or newer. A
    checkpoint that loses too much accuracy with it is refused at start.
    """
    cross_cache: CrossCache = "auto"
    """What the decoder keeps of a window's encoder states, and reads in every step.

    `auto`: their keys and values for every layer. `int8`: the same in 8 bits, with a scale for each; steps of many rows
    are faster and slots smaller. It needs the fused kernels. `states`: the states themselves, once for all layers. With
    decoders of many layers, many requests at a time are faster, few at a time slower, and slots are smaller. It needs a
    Hopper or data-centre Blackwell GPU. A checkpoint that loses too much accuracy with one of them is refused at start.
    """
    audio_context: AudioContext = "auto"
    """How much of a window is encoded.

    `auto`: its audio and a margin where the checkpoint was trained for that, else 30 s. `interims`: the same for the
    interims of other checkpoints too, while their finals stay as they are. `full`: 30 s.
    """
    kernels: Kernels = "auto"
    """The kernels of the forward pass.

    `torch`: PyTorch's, on any device. On a GPU in 16 bits there are two more. `triton`: our own; attention over full
    windows is cuDNN's on GPUs other than those of compute capability 9.0, and over shorter ones PyTorch's Flash
    Attention. `flashinfer`: our own, with FlashInfer's attention in steps and over full windows. `auto` is the fastest,
    as measured: our own.
    """
    cuda_graphs: bool = True
    """Capture the fused forward passes as CUDA graphs and replay them; otherwise every kernel is launched by itself."""
    one_kernel_steps: bool = True
    """Run a decode step of one or two rows in one kernel, where that is captured as a graph and gives the same bits."""
    steps_ahead: bool = True
    """Whether a GPU is given a decode step before the tokens of the step before it are collected."""
    n_threads: int | None = None
    """CPU threads of one tensor operation; `None` is one per core."""
    n_slots: int | None = None
    """Sequences decoded at the same time; each slot keeps its caches allocated.

    `None` is 32 on the CPU, where memory is only taken once it is used, and on CUDA as many as fit, up to 256.
    """
    gpu_memory_fraction: float = 0.85
    """Fraction of the GPU memory left after loading the model that the slots may use."""
    gpu_share: float = 1.0
    """The part of the GPU that this engine has, beside engines in other processes.

    Of its memory, weights included, which limits the slots; and of its time where forecasts begin.
    """
    max_encode_batch: int = 8
    """The most windows in one encoder call."""
    max_wait_ms: float = 5.0
    """How long the oldest waiting window is held back, in milliseconds, so that others can share its encoder call."""
    max_decode_stall_ms: float = 400.0
    """How long running sequences may wait for one encoder call, in milliseconds.

    It bounds the batch of the call, but never to less than one window.
    """
    min_decode_share: float | None = None
    """The fraction of the time that running sequences keep for their steps while other windows wait to be encoded.

    `None` is 0.33 on the CPU and 0.2 on CUDA, where decoding takes less of the time. On the CPU few sequences keep less
    while more finals wait, or files where no session is live.
    """
    max_waiting: int = 512
    """The most interims and speculative finals in the queue; one more is refused with `EngineOverloaded`.

    Finals always have room: those who submit them bound their number.
    """

    def __post_init__(self) -> None:
        hints = get_type_hints(EngineConfig)
        for name in ("device", "dtype", "encoder_dtype", "cross_cache", "audio_context", "kernels"):
            choices = get_args(hints[name])
            self._require(name, getattr(self, name) in choices, "one of " + ", ".join(choices))
        self._require("model", bool(self.model), "a name or a folder")
        self._require("n_slots", self.n_slots is None or self.n_slots >= 1, "at least 1")
        for name in ("gpu_memory_fraction", "gpu_share"):
            self._require(name, 0 < getattr(self, name) <= 1, "above 0 and at most 1")
        for name in ("max_encode_batch", "max_waiting"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        self._require("n_threads", self.n_threads is None or self.n_threads >= 1, "at least 1")
        for name in ("max_wait_ms", "max_decode_stall_ms"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        share = self.min_decode_share
        self._require("min_decode_share", share is None or 0 <= share < 1, "at least 0 and below 1")
        self._require("dtype", (self.device, self.dtype) != ("cpu", "float16"), "float32, bfloat16 or int8 on the CPU")
        self._require("dtype", (self.device, self.dtype) != ("cuda", "int8"), "float32, bfloat16 or float16 on CUDA")

    def _require(self, name: str, is_met: bool, expected: str) -> None:
        if not is_met:
            raise ValueError(f"{name}: expected {expected}, got {getattr(self, name)!r}")
