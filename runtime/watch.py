"""What arguments and environment ask an engine to show of itself."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from ..hal import env
from ..hal.backend import Backend
from ..hal.device import Device
from ..hal.errors import NotSupportedError
from .args import EngineArgs
from .engine import LLMEngine
from .flops import peak_flops
from .metrics import EngineMetrics, prometheus
from .metrics_server import MetricsServer
from .observe import Observer
from .profiler import Profiler, ProfilerServer
from .timeline import Timeline

log = logging.getLogger(__name__)


def check_watch(args: EngineArgs) -> None:
    """Raises NotSupportedError before a model is loaded, if a package is missing for what is asked for."""
    if args.metrics_port is not None:
        prometheus()


def watch(engine: LLMEngine, args: EngineArgs, device: Device) -> None:
    """Serve metrics and profiles and keep a timeline, as far as is asked for, until the engine is closed.

    Raises:
        InvalidArgumentError: a port that cannot be had.
        NotSupportedError: a package is missing.
    """
    with ExitStack() as stack:
        if args.metrics_port is not None:
            metrics = MetricsServer(EngineMetrics(engine), args.metrics_port)
            stack.callback(metrics.close)
            log.info("metrics at %s", metrics.url)
        if env.get("DEEPINFER_PROFILE_HTTP_ENABLE"):
            profiler = Profiler(engine, env.get("DEEPINFER_TORCH_PROFILER_DIR") or "/tmp", device.index)
            server = ProfilerServer(profiler, env.get("DEEPINFER_PROFILE_HTTP_PORT_BASE") + device.index)
            stack.callback(server.close)
        if args.timeline is not None:
            stack.callback(Timeline(engine).write, args.timeline)
        engine.observers.add(_AtTheEnd(stack.pop_all()))


class _AtTheEnd(Observer):
    """Ends what was begun when the engine is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def closed(self) -> None:
        self._stack.close()


def peak_of(backend: Backend, device: Device) -> float | None:
    """FP8-equivalent FLOPs per second of a device; None where that is not known."""
    try:
        return peak_flops(backend.capability(device).arch)
    except NotSupportedError:
        return None
