"""Metrics over HTTP, on this machine alone unless somebody says otherwise."""

from __future__ import annotations

from typing import Any

from ..hal.errors import InvalidArgumentError
from .metrics import EngineMetrics, prometheus

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 9760
"""Where `deepinfer top` looks unless it is told otherwise."""


def exposition(metrics: EngineMetrics) -> bytes:
    """All metrics in Prometheus' text format.

    Raises:
        NotSupportedError: prometheus_client is not installed.
    """
    package = prometheus()
    return bytes(package.generate_latest(_registry(package, metrics)))


def _registry(package: Any, metrics: EngineMetrics) -> Any:
    registry = package.CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return registry


class MetricsServer:
    """Serves `/metrics` from a thread until it is closed.

    Args:
        metrics: of one engine.
        port: 0 takes a free one.
        host: address to listen at; other machines reach it only where this says so.

    Attributes:
        port: that it listens at.

    Raises:
        NotSupportedError: prometheus_client is not installed.
        InvalidArgumentError: the port cannot be had.
    """

    def __init__(self, metrics: EngineMetrics, port: int, host: str = LOOPBACK) -> None:
        package = prometheus()
        registry = _registry(package, metrics)
        try:
            self._server, self._thread = package.start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            raise InvalidArgumentError("metrics port", port, f"a free port of {host} ({error})") from None
        self.port: int = self._server.server_port

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"http://{self._server.server_address[0]}:{self.port}/metrics"

    def close(self) -> None:
        """Calling it again does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
