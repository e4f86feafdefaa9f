"""What an engine shows of itself when arguments and environment ask for it, over the embedded model."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device
from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.args import EngineArgs
from deepinfer.runtime.async_llm import AsyncLLM
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.metrics_server import MetricsServer
from deepinfer.runtime.observe import Observer
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.profiler import ProfilerServer
from deepinfer.runtime.watch import peak_of, watch
from engines import build_engine

SMALL: dict[str, Any] = {"max_model_len": 128, "max_num_seqs": 4, "num_pages": 8}
PROMPTS = ["Once upon a time", "The op"]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def closers(engine: Any) -> list[Observer]:
    return [one for one in engine.observers if type(one).__name__ == "_AtTheEnd"]


def test_an_engine_shows_what_its_arguments_ask_for(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    port, file = free_port(), tmp_path / "t.json"
    with LLM("tiny", metrics_port=port, timeline=str(file), **SMALL) as llm:
        llm.generate(PROMPTS[:1], SamplingParams(max_tokens=3, temperature=0), use_tqdm=False)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert "deepinfer_output_tokens_total 3.0" in text and "deepinfer_pages 8.0" in text
    assert any(event["name"] == "decode" for event in json.loads(file.read_text())["traceEvents"])
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_a_port_that_is_taken_or_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidArgumentError, match="metrics port"):
            LLM("tiny", metrics_port=taken.getsockname()[1], **SMALL)
    with pytest.raises(InvalidArgumentError, match="metrics_port: got 65536"):
        EngineArgs(metrics_port=65536)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(NotSupportedError, match="extra `metrics`"):
        LLM("no such model", metrics_port=0)


def test_the_environment_turns_profiles_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.hal import env

    made: list[Any] = []

    class Noted(ProfilerServer):
        def __init__(self, profiler: Any, port: int) -> None:
            super().__init__(profiler, port)
            made.append((profiler, port, self))

    monkeypatch.setattr("deepinfer.runtime.watch.ProfilerServer", Noted)
    base = free_port()
    values = {"PROFILE_HTTP_ENABLE": "1", "PROFILE_HTTP_PORT_BASE": str(base - 1), "TORCH_PROFILER_DIR": str(tmp_path)}
    for name, value in values.items():
        monkeypatch.setenv(f"DEEPINFER_{name}", value)
        env.rearm(f"DEEPINFER_{name}")
    try:
        engine = build_engine()
        watch(engine, EngineArgs(), Device("cuda", 1))
    finally:
        for name in values:
            monkeypatch.delenv(f"DEEPINFER_{name}")
            env.rearm(f"DEEPINFER_{name}")
    ((profiler, port, server),) = made
    assert port == base == server.port and profiler._directory == tmp_path and "-gpu1-" in profiler._name
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/profile", timeout=10) as answer:
        assert json.loads(answer.read()) == {"state": "idle"}
    engine.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/profile", timeout=10)


def test_nothing_is_served_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: Any) -> None:
        raise AssertionError("served")

    monkeypatch.setattr(MetricsServer, "__init__", no)
    monkeypatch.setattr(ProfilerServer, "__init__", no)
    engine = build_engine()
    watch(engine, EngineArgs(), Device("cpu"))
    assert len(list(engine.observers)) == len(closers(engine)) == 1


def test_the_log_of_a_model_knows_its_work_and_not_the_peak_of_a_cpu(caplog: pytest.LogCaptureFixture) -> None:
    with LLM("tiny", disable_log_stats=False, **SMALL) as llm:
        assert llm.engine.config.flops is not None and llm.engine.config.peak_flops is None
        assert llm.engine.config.flops.row > 0
    backend = load_backend("reference")
    assert peak_of(backend, Device("cpu")) is None


def test_streams_of_a_model_say_what_generate_says() -> None:
    """Greedy and sampled, with drafts, all at once: ids, texts and the bits of log-probabilities."""
    params = [SamplingParams(max_tokens=6, temperature=t, seq_seed=5, top_logprobs=2) for t in (0.0, 1.0)]
    with LLM("tiny", decode_sequence=False, **SMALL) as llm:
        expected = llm.generate(PROMPTS, params, use_tqdm=False)

    async def main() -> list[Any]:
        async with await AsyncLLM.load("tiny", **SMALL) as streams:

            async def collect(prompt: str, one: SamplingParams) -> list[Any]:
                return [delta async for delta in streams.generate(prompt, one)]

            return await asyncio.gather(*(collect(p, one) for p, one in zip(PROMPTS, params, strict=True)))

    for outputs, deltas in zip(expected, asyncio.run(main()), strict=True):
        assert [t for d in deltas for t in d.token_ids] == [o.token_id for o in outputs]
        assert "".join(d.text for d in deltas) == "".join(o.text for o in outputs)
        assert [p for d in deltas for p in d.token_logprobs] == [o.token_logprobs for o in outputs]
        assert [p for d in deltas for p in d.top_logprobs] == [o.top_logprobs for o in outputs]
        assert deltas[-1].finish_reason == outputs[-1].finish_reason
