"""Launches of device images through CANN's runtime.

The calls and the layout of arguments are those of TileLang's runtime (`ascend_module.cc` in its wheel): each argument
at a multiple of its size, of 4 bytes at least, the whole a multiple of 8. None of this has run on a device; what is
decided here is tested with a fake library.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...hal.errors import DeviceFaultError, InvalidArgumentError
from .sim.source import Parameter, Signature

DYNAMIC_UB = 2
"""Number of the launch attribute that says how much of UB a kernel uses."""
UB_BYTES, UB_BYTES_SIMT = 248 * 1024, 216 * 1024
_FORMATS = {
    "float": "f", "double": "d",
    "int8_t": "b", "uint8_t": "B", "int16_t": "h", "uint16_t": "H",
    "int32_t": "i", "uint32_t": "I", "int64_t": "q", "uint64_t": "Q",
}  # fmt: skip
_LEAST, _WORD = 4, 8


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int32), ("value", ctypes.c_uint32 * 4))


class _Configuration(ctypes.Structure):
    _fields_ = (("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_size_t))


def pack(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> bytes:
    """A kernel's arguments as the runtime takes them; tensors as their addresses.

    Raises:
        InvalidArgumentError: one is missing, of a type that cannot be passed, or too large for its type.
    """
    packed = b""
    for parameter in parameters:
        if parameter.name not in given:
            raise InvalidArgumentError(parameter.name, None, f"{parameter.type}, a parameter of the kernel")
        value = given[parameter.name]
        if parameter.pointer and not isinstance(value, Tensor):
            raise InvalidArgumentError(parameter.name, value, "a tensor")
        kind = "Q" if parameter.pointer else _FORMATS.get(parameter.type.replace("const ", ""))
        if kind is None:
            raise InvalidArgumentError(parameter.name, value, f"parameters of type {parameter.type} cannot be passed")
        size = struct.calcsize(kind)
        packed += bytes(-len(packed) % max(size, _LEAST))
        try:
            packed += struct.pack(f"<{kind}", value.data_ptr() if parameter.pointer else value)
        except (struct.error, OverflowError) as error:
            raise InvalidArgumentError(parameter.name, value, f"a value of {parameter.type}: {error}") from error
    return packed + bytes(-len(packed) % _WORD)


class Runtime:
    """The few calls of CANN's runtime that launch an image.

    Args:
        library: libascendcl as ctypes loads it, or a fake with the same functions.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._binaries: dict[tuple[int, str], Any] = {}
        self._functions: dict[tuple[int, str, str], Any] = {}

    def launch(
        self, image: Path, signature: Signature, blocks: int, given: Mapping[str, Any], device: int, stream: int
    ) -> None:
        """Queue a kernel on a stream.

        Args:
            image: file of the device image. blocks: of the launch. given: arguments by name.
            device: number of the device, the current one of this thread. stream: address of its stream.

        Raises:
            DeviceFaultError: the runtime refuses.
            InvalidArgumentError: an argument that cannot be passed.
        """
        function = self._function(image, signature.name, device)
        arguments = pack(signature.parameters, given)
        buffer = ctypes.create_string_buffer(arguments, len(arguments))
        attribute = _Attribute(DYNAMIC_UB, (ctypes.c_uint32 * 4)(UB_BYTES_SIMT if signature.simt else UB_BYTES))
        configuration = _Configuration(ctypes.pointer(attribute), 1)
        self._call(
            "aclrtLaunchKernelWithHostArgs",
            function,
            ctypes.c_uint32(blocks),
            ctypes.c_void_p(stream),
            None if signature.kind == "cube" else ctypes.byref(configuration),
            buffer,
            ctypes.c_size_t(len(arguments)),
            None,
            ctypes.c_size_t(0),
        )

    def _function(self, image: Path, name: str, device: int) -> Any:
        key = (device, str(image), name)
        if key not in self._functions:
            if key[:2] not in self._binaries:
                code, binary = image.read_bytes(), ctypes.c_void_p()
                self._call("aclrtBinaryLoadFromData", code, ctypes.c_size_t(len(code)), None, ctypes.byref(binary))
                self._binaries[key[:2]] = binary
            function = ctypes.c_void_p()
            self._call("aclrtBinaryGetFunction", self._binaries[key[:2]], name.encode(), ctypes.byref(function))
            self._functions[key] = function
        return self._functions[key]

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise DeviceFaultError(f"CANN's runtime has no {name}: it is too old for these kernels")
        if code := function(*arguments):
            raise DeviceFaultError(f"{name} failed with error {code} of CANN's runtime{self._said()}")

    def _said(self) -> str:
        try:
            function = self._library.aclGetRecentErrMsg
        except AttributeError:
            return ""
        if isinstance(self._library, ctypes.CDLL):
            function.restype = ctypes.c_char_p
        message = function()
        return f": {message.decode(errors='replace').strip()}" if message else ""
