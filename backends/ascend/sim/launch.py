"""Launching kernels on the simulator with torch CPU tensors.

kernel = Kernel(text, blocks=4)
report = kernel(A=a, B=b, C=c, n=1000)      # tensors are read and written in place
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ....hal.errors import InvalidArgumentError
from . import build, source
from .errors import KernelFault
from .schedule import CORES, KINDS, PIPES, Schedule

MEMORIES = ("UB", "L1", "L0A", "L0B", "L0C")
EAGER = Schedule()
_NAME_BYTES = 64
_ERROR_BYTES = 16384
_LARGEST_GRID = 1024
_JOINT_GRID = 64  # blocks that wait for each other hold their threads at once

# Element types of the text and what may be passed for them; a type that is not here is taken by its size alone.
_DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "float": (torch.float32,),
    "half": (torch.float16,),
    "bfloat16_t": (torch.bfloat16,),
    "float8_e4m3_t": (torch.float8_e4m3fn,),
    "fp8_e4_t": (torch.float8_e4m3fn,),
    "fp8_e4m3fn_t": (torch.float8_e4m3fn,),
    "float8_e5m2_t": (torch.float8_e5m2,),
    "float8_e8m0_t": (torch.float8_e8m0fnu, torch.uint8),
    "fp8_e8m0_t": (torch.float8_e8m0fnu, torch.uint8),
    "float4_e2m1x2_t": (torch.uint8, torch.int8, torch.float4_e2m1fn_x2),
    "float4_e1m2x2_t": (torch.uint8, torch.int8),
    "int8_t": (torch.int8,),
    "uint8_t": (torch.uint8, torch.bool),
    "bool": (torch.bool, torch.uint8),
    "int16_t": (torch.int16, torch.uint16),
    "uint16_t": (torch.uint16, torch.int16),
    "int32_t": (torch.int32, torch.uint32),
    "uint32_t": (torch.uint32, torch.int32),
    "int": (torch.int32,),
    "int64_t": (torch.int64, torch.uint64),
    "uint64_t": (torch.uint64, torch.int64),
}
_INTEGERS = {
    **{f"int{n}_t": (-(1 << (n - 1)), (1 << (n - 1)) - 1) for n in (8, 16, 32, 64)},
    **{f"uint{n}_t": (0, (1 << n) - 1) for n in (8, 16, 32, 64)},
    "int": (-(1 << 31), (1 << 31) - 1),
    "unsigned": (0, (1 << 32) - 1),
    "bool": (0, 1),
}


class _Part(ctypes.Structure):  # ArgumentPart of runtime/launch.h
    _fields_ = [
        ("name", ctypes.c_char * _NAME_BYTES),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("value", ctypes.c_int64),
        ("touched", ctypes.c_int64),
    ]


class _Request(ctypes.Structure):  # Request of runtime/launch.h
    _fields_ = [
        ("kernel", ctypes.c_char * _NAME_BYTES),
        *[(name, ctypes.c_int32) for name in ("kind", "simt", "joint", "blocks")],
        *[
            (name, ctypes.c_int32)
            for name in ("schedule", "pipe", "late", "reverse_cores", "reverse_threads", "overlap", "relaxed", "trace")
        ],
        ("seed", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("arguments", ctypes.c_int32),
        ("sites", ctypes.c_int32),
        ("argument", ctypes.POINTER(_Part)),
        ("site", ctypes.POINTER(ctypes.c_int32)),
        ("delta", ctypes.c_int64),
        ("error", ctypes.c_char_p),
        ("error_bytes", ctypes.c_int64),
        ("ops", ctypes.c_uint64 * 7),
        ("bytes", ctypes.c_uint64 * 7),
        *[(name, ctypes.c_uint64) for name in ("flop", "cube_steps", "threads", "barriers")],
        ("high", ctypes.c_uint64 * 5),
        ("events", ctypes.c_uint64),
        *[
            (name, ctypes.c_uint64)
            for name in ("global_bytes", "simd_busy", "simd_offered", "simt_busy", "simt_offered")
        ],
    ]


@dataclass(frozen=True)
class Event:
    """One executed instruction: block, core ("AIC", "AIV0", "AIV1"), pipe, name, and its number in that pipe."""

    block: int
    core: str
    pipe: str
    name: str
    number: int


@dataclass(frozen=True)
class Report:
    """What a run did, summed over all cores.

    Attributes:
        schedule: that it ran under.
        instructions: executed, by pipe, without synchronisation.
        bytes: moved or read by each pipe; for M the operands read from L0.
        moved: bytes from and to global memory, by copies and by threads.
        flop: of the matrix unit, 2 M N K a product.
        cube_steps: products of a 16 x 32-byte with a 16 x 32-byte fractal; the unit does one a cycle at its best.
        threads, barriers: of SIMT functions.
        simd: lanes that arithmetic and stores of vector registers used, and lanes that there were.
        simt: accesses of threads to memory between barriers, and how many they would have been had all 32 lanes of each
            warp done as many as its busiest.
        high: by memory, the end of the highest byte touched on any core, in bytes.
        touched: by tensor argument, the end of the highest byte touched.
        events: executed instructions in order, when traced.
    """

    schedule: Schedule
    instructions: Mapping[str, int]
    bytes: Mapping[str, int]
    moved: int
    flop: int
    cube_steps: int
    threads: int
    barriers: int
    simd: tuple[int, int]
    simt: tuple[int, int]
    high: Mapping[str, int]
    touched: Mapping[str, int]
    events: tuple[Event, ...]


class Kernel:
    """A built kernel.

    Args:
        text: AscendC source with one kernel, as generated or written by hand.
        blocks: blocks to launch, 1 to 1024 (1 to 64 when blocks wait for each other).
        sanitize: see `build.build`.

    Raises:
        InvalidArgumentError, SourceError, BuildError.
    """

    def __init__(self, text: str, blocks: int, sanitize: str = "") -> None:
        self.signature = source.signature(text)
        most = _JOINT_GRID if self.signature.joint else _LARGEST_GRID
        if isinstance(blocks, bool) or not isinstance(blocks, int) or not 1 <= blocks <= most:
            raise InvalidArgumentError("blocks", blocks, f"an integer from 1 to {most}")
        self.text, self.blocks = text, blocks
        self.library = build.build(text, sanitize)
        self._lock = threading.Lock()  # a library runs one launch at a time
        self._code = ctypes.CDLL(str(self.library))
        self._code.ascsim_run.argtypes = [ctypes.POINTER(_Request)]
        self._code.ascsim_event.restype = ctypes.c_int64
        self._code.ascsim_event.argtypes = [ctypes.c_int64, *[ctypes.POINTER(ctypes.c_int32)] * 3, ctypes.c_void_p]

    def __call__(
        self,
        schedule: Schedule = EAGER,
        *,
        relaxed: bool = False,
        trace: bool = False,
        seconds: float = 60.0,
        **arguments: torch.Tensor | int | float,
    ) -> Report:
        """`run` with the kernel's arguments by name."""
        return self.run(arguments, schedule, relaxed=relaxed, trace=trace, seconds=seconds)

    def run(
        self,
        arguments: Mapping[str, torch.Tensor | int | float],
        schedule: Schedule = EAGER,
        *,
        relaxed: bool = False,
        trace: bool = False,
        seconds: float = 60.0,
        sites: tuple[int, ...] = (),
        delta: int = 0,
    ) -> Report:
        """Run all blocks; tensor arguments are read and written in place, also when the run fails.

        Args:
            arguments: the kernel's parameters by name; two may be the same bytes, for an operation in place.
            schedule: order of what is ready.
            relaxed: leave out the rules of flags (a flag set twice, flags left over) and of races between threads, so
                that only data betrays a missing dependency.
            trace: record every executed instruction.
            seconds: time limit of a group of blocks.
            sites, delta: fault injection, see `mutate`.

        Raises:
            InvalidArgumentError: an argument is missing, unknown, or of another type, dtype, device or layout.
            KernelFault: the run found a fault.
        """
        if not 0 < seconds <= 3600:
            raise InvalidArgumentError("seconds", seconds, "more than 0, at most 3600")
        parts = self._parts(arguments)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        request = _Request()
        request.kernel = self.signature.name.encode()[: _NAME_BYTES - 1]
        request.kind = source.KINDS.index(self.signature.kind)
        request.simt, request.joint, request.blocks = self.signature.simt, self.signature.joint, self.blocks
        request.schedule, request.pipe = KINDS.index(schedule.kind), PIPES.index(schedule.pipe)
        request.late = CORES.index(schedule.late) if schedule.late else -1
        request.seed = schedule.seed
        request.reverse_cores, request.reverse_threads = schedule.reverse_cores, schedule.reverse_threads
        request.overlap, request.relaxed, request.trace, request.seconds = schedule.overlap, relaxed, trace, seconds
        request.arguments, request.argument = len(parts), parts
        request.sites, request.site, request.delta = len(sites), (ctypes.c_int32 * len(sites))(*sites), delta
        request.error = ctypes.cast(error, ctypes.c_char_p)
        request.error_bytes = _ERROR_BYTES
        with self._lock:
            failed = self._code.ascsim_run(ctypes.byref(request))
            events = tuple(self._event(i) for i in range(request.events)) if trace and not failed else ()
        if failed:
            raise KernelFault(f"{error.value.decode(errors='replace').strip()} [schedule {schedule}]")
        return Report(
            schedule=schedule,
            instructions=dict(zip(PIPES[1:], list(request.ops)[1:])),
            bytes=dict(zip(PIPES[1:], list(request.bytes)[1:])),
            moved=request.global_bytes,
            flop=request.flop,
            cube_steps=request.cube_steps,
            threads=request.threads,
            barriers=request.barriers,
            simd=(request.simd_busy, request.simd_offered),
            simt=(request.simt_busy, request.simt_offered),
            high=dict(zip(MEMORIES, request.high)),
            touched={p.name: parts[i].touched for i, p in enumerate(self.signature.parameters) if p.pointer},
            events=events,
        )

    def _event(self, index: int) -> Event:
        block, kind, pipe = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32()
        name = ctypes.c_char_p()
        number = self._code.ascsim_event(index, block, kind, pipe, ctypes.byref(name))
        return Event(block.value, CORES[kind.value], PIPES[pipe.value], (name.value or b"").decode(), number)

    def _parts(self, arguments: Mapping[str, Any]) -> ctypes.Array[_Part]:
        names = [p.name for p in self.signature.parameters]
        if unknown := sorted(set(arguments) - set(names)):
            raise InvalidArgumentError(unknown[0], arguments[unknown[0]], f"kernel parameters: {', '.join(names)}")
        parts = (_Part * len(names))()
        memory: dict[int, _Part] = {}
        for part, parameter in zip(parts, self.signature.parameters):
            if parameter.name not in arguments:
                raise InvalidArgumentError(parameter.name, None, f"{parameter.type}, a parameter of the kernel")
            part.name = parameter.name.encode()[: _NAME_BYTES - 1]
            value = arguments[parameter.name]
            if parameter.pointer:
                tensor = _checked_tensor(parameter, value)
                part.data, part.bytes = tensor.data_ptr() or ctypes.addressof(parts), tensor.nbytes
                first = memory.setdefault(part.data, part) if tensor.numel() else part
                if first.bytes != part.bytes:
                    raise InvalidArgumentError(
                        parameter.name,
                        f"{part.bytes} bytes at the memory of {first.name.decode()}, which has {first.bytes}",
                        "a tensor of its own, or the same bytes for an operation in place",
                    )
            else:
                part.value = _scalar_bits(parameter, value)
        return parts


def _checked_tensor(parameter: source.Parameter, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise InvalidArgumentError(parameter.name, value, f"a tensor ({parameter.type})")
    if value.device.type != "cpu" or not value.is_contiguous():
        what = f"a tensor on {value.device}, {'' if value.is_contiguous() else 'not '}contiguous"
        raise InvalidArgumentError(parameter.name, what, "a contiguous CPU tensor")
    allowed = _DTYPES.get(parameter.type.replace("const ", ""))
    if allowed is not None and value.dtype not in allowed:
        raise InvalidArgumentError(parameter.name, value.dtype, " or ".join(map(str, allowed)))
    return value


def _scalar_bits(parameter: source.Parameter, value: Any) -> int:
    kind = parameter.type.replace("const ", "")
    if kind in ("float", "double", "half", "bfloat16_t"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidArgumentError(parameter.name, value, f"a number ({kind})")
        if kind == "double":
            return int.from_bytes(bytes(ctypes.c_double(value)), "little", signed=True)
        dtype = {"float": torch.float32, "half": torch.float16, "bfloat16_t": torch.bfloat16}[kind]
        bits = torch.tensor(float(value), dtype=dtype).view(torch.int32 if kind == "float" else torch.int16)
        return int(bits.item())
    if kind not in _INTEGERS:
        raise InvalidArgumentError(parameter.name, value, f"scalar parameters of type {kind} cannot be passed")
    low, high = _INTEGERS[kind]
    if not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgumentError(parameter.name, value, f"an integer from {low} to {high} ({kind})")
    return value - (1 << 64) if value >= 1 << 63 else value
