"""The other implementation: transformers' DeepSeek-V4, imported at run time, in float64 wherever its code allows."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from deepinfer.backends import reference

MODULE = "transformers.models.deepseek_v4.modeling_deepseek_v4"


@pytest.fixture(scope="session")
def v4() -> ModuleType:
    """The modelling module; a test that asks for it is skipped where transformers or the model is missing."""
    module = pytest.importorskip(MODULE, reason=f"needs {MODULE}: install the crosscheck extra", exc_type=ImportError)
    assert isinstance(module, ModuleType)
    return module


@pytest.fixture(scope="session")
def make_config(v4: ModuleType) -> Callable[..., Any]:
    """A one-layer configuration with the constants of V4.1; keywords replace sizes."""

    def make(**changes: Any) -> Any:
        sizes = {
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "layer_types": ["sliding_attention"],
            "mlp_layer_types": ["moe"],
            "num_attention_heads": 4,
            "head_dim": 64,
            "qk_rope_head_dim": 32,
            "q_lora_rank": 32,
            "o_groups": 2,
            "o_lora_rank": 16,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "vocab_size": 64,
            "rms_norm_eps": 1e-20,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 16,
                "beta_fast": 32,
                "beta_slow": 1,
                "original_max_position_embeddings": 65536,
            },
        }
        return v4.DeepseekV4Config(**(sizes | changes))

    return make


@pytest.fixture(scope="session", autouse=True)
def _reference() -> None:
    reference.backend.load()


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield
