from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer.model.values import value_fault


@pytest.mark.parametrize(
    ("dtype", "torch_dtype"), [("F8_E4M3", torch.float8_e4m3fn), ("F8_E8M0", torch.float8_e8m0fnu)]
)
def test_every_byte_code(dtype: str, torch_dtype: torch.dtype) -> None:
    for code in range(256):
        finite = bool(torch.isfinite(torch.tensor([code], dtype=torch.uint8).view(torch_dtype).float()))
        assert (value_fault(dtype, np.array([code], np.uint8)) is None) == finite, code


@pytest.mark.parametrize(("dtype", "torch_dtype"), [("BF16", torch.bfloat16), ("F32", torch.float32)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), -float("nan")])
def test_wide_floats(dtype: str, torch_dtype: torch.dtype, bad: float) -> None:
    values = torch.linspace(-3, 3, 1000, dtype=torch_dtype)
    values[3] = torch.finfo(torch_dtype).min
    values[4] = -0.0
    raw = values.view(torch.uint8).numpy()
    assert value_fault(dtype, raw) is None
    values[777] = bad
    assert value_fault(dtype, raw, first=10_000) == "element 10777 (flat index) is NaN or infinity"


def test_scale_byte_255_is_named() -> None:
    scales = np.full(100, 254, np.uint8)
    assert value_fault("F8_E8M0", scales) is None
    scales[41] = 255
    assert value_fault("F8_E8M0", scales) == "element 41 (flat index) is scale byte 255 (NaN)"


def test_formats_without_bad_values_and_empty_tensors() -> None:
    assert value_fault("I8", np.arange(256, dtype=np.uint8)) is None
    assert value_fault("BF16", np.empty(0, np.uint8)) is None
