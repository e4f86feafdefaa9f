"""Loading a model reads every value through the checks: one that was never written stops it, before any step."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from deepinfer.hal.errors import CheckpointError
from deepinfer.model.loading import load_model

NAN_OF = {"F8_E8M0": b"\xff", "F8_E4M3": b"\x7f", "BF16": b"\xc0\x7f", "F32": b"\x00\x00\xc0\x7f"}


def spoil(directory: Any, name: str, value: bytes, at: int = 0) -> str:
    """Overwrite bytes of a stored tensor; the name of its dtype."""
    shard = directory.shard_of(name)
    start = shard.bytes_of(name).start + at
    shard.data[start : start + len(value)] = value
    shard.save()
    dtype: str = shard.header[name]["dtype"]
    return dtype


def unwritten(directory: Any, name: str) -> None:
    part = directory.shard_of(name).bytes_of(name)
    spoil(directory, name, bytes(part.stop - part.start))


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.attn.wo_b.scale",  # a plain linear
        "layers.0.attn.wo_a.scale",  # one prepared by groups
        "layers.7.ffn.experts.5.w1.scale",  # stacked with the other experts
        "layers.7.ffn.experts.0.w2.scale",
        "layers.3.ffn.shared_experts.w3.scale",  # joined with its neighbour
        "layers.4.engram.embed.scale",  # a table's rows
        "mtp.0.ffn.experts.1.w2.scale",  # a part that no step runs yet
    ],
)
def test_scales_that_were_never_written_stop_the_load(directory: Any, name: str) -> None:
    unwritten(directory, name)
    with pytest.raises(CheckpointError, match="never written") as caught:
        load_model(directory.path, identity_vocabulary=True)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "embed.weight",
        "norm.weight",
        "layers.0.attn.attn_sink",
        "layers.2.attn.wq_a.weight",
        "layers.7.ffn.experts.3.w3.scale",
        "layers.1.engram.embed.weight",
    ],
)
def test_values_that_are_not_finite_stop_the_load(directory: Any, name: str) -> None:
    dtype = directory.shard_of(name).header[name]["dtype"]
    spoil(directory, name, NAN_OF[dtype])
    with pytest.raises(CheckpointError, match="element 0 ") as caught:
        load_model(directory.path, identity_vocabulary=True)
    assert name in str(caught.value)


def test_unknown_keys_of_the_configuration_are_named_once(directory: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="deepinfer"):
        load_model(directory.path, identity_vocabulary=True)
        assert caplog.messages == []
        directory.edit_config(lambda values: values.update(extra_a=1))
        directory.edit_config(lambda values: values["text_config"].update(extra_b=None))
        load_model(directory.path, identity_vocabulary=True)
    (message,) = caplog.messages
    assert "config.json" in message and "extra_a, text_config.extra_b" in message
