"""Calls of SIMT functions, each as its documentation says; launches and what a program reads and writes itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ascend import needs_compiler
from ascend_calls import Calls
from deepinfer.backends.ascend.sim import KernelFault

pytestmark = needs_compiler
BODIES = {
    "threadIdx": "y[i] = threadIdx.x + 100 * threadIdx.y + 1000 * threadIdx.z;",
    "blockDim": "y[i] = blockDim.x + 100 * blockDim.y + 1000 * blockDim.z;",
    "asc_shfl": "y[i] = asc_shfl(x[i], 5);",
    "asc_shfl width": "y[i] = asc_shfl(x[i], 1, 16);",
    "asc_shfl_up": "y[i] = asc_shfl_up(x[i], 3);",
    "asc_shfl_up width": "y[i] = asc_shfl_up(x[i], 3, 8);",
    "asc_shfl_down": "y[i] = asc_shfl_down(x[i], 3);",
    "asc_shfl_down width": "y[i] = asc_shfl_down(x[i], 3, 8);",
    "asc_shfl_xor": "y[i] = asc_shfl_xor(x[i], 9);",
    "asc_shfl_xor float": "y[i] = int32_t(asc_shfl_xor(float(x[i]), 1));",
    "asc_shfl_xor 64": "y[i] = int32_t(asc_shfl_xor(int64_t(x[i]) << 33, 2) >> 33);",
    "asc_reduce_add": "y[i] = asc_reduce_add(x[i]);",
    "asc_reduce_max": "y[i] = asc_reduce_max(x[i]);",
    "asc_reduce_min": "y[i] = asc_reduce_min(x[i]);",
    "asc_reduce_add float": "y[i] = int32_t(asc_reduce_add(float(x[i])));",
    "asc_ballot": "y[i] = int32_t(asc_ballot(x[i] % 3 == 0));",
    "asc_syncthreads": "u[i] = x[i]; asc_syncthreads(); y[i] = u[63 - i];",
    "asc_threadfence": "u[i] = x[i]; asc_threadfence(); asc_syncthreads(); y[i] = u[63 - i];",
    "asc_atomic_add": "asc_atomic_add(y + i % 4, x[i]);",
    "asc_atomic_sub": "asc_atomic_sub(y + i % 4, x[i]);",
    "asc_atomic_max": "asc_atomic_max(y + i % 4, x[i]);",
    "asc_atomic_min": "asc_atomic_min(y + i % 4, x[i]);",
    "asc_atomic_exch": "u[i] = asc_atomic_exch(y + i, x[i]); asc_syncthreads(); if (u[i] != -7) y[i] = -1;",
    "asc_atomic_cas": "const int32_t old = asc_atomic_cas(y + i, i % 2 ? -7 : 5, x[i]); if (old != -7) y[i] = -1;",
    "asc_atomic_add old": "if (i == 0) u[0] = 0; asc_syncthreads(); const int32_t old = asc_atomic_add(u, 1); "
    "asc_atomic_add(y + old, old + 7);",
    "asc_atomic_add float": "__ubuf__ float* f = (__ubuf__ float*)u; if (i == 0) f[0] = 0.0f; asc_syncthreads(); "
    "asc_atomic_add(f, 0.5f * float(x[i])); asc_syncthreads(); y[i] = int32_t(f[0]);",
    "ended threads": "if (i >= 32) return; y[i] = asc_reduce_add(1);",
    "part of a warp": "if (i % 32 < 16) y[i] = asc_reduce_add(1);",
    "part at a barrier": "if (i < 32) asc_syncthreads();",
}
FUNCTIONS = "".join(
    f"__simt_vf__ __launch_bounds__(64) inline void f{n}(__gm__ int32_t* x, __gm__ int32_t* y, __ubuf__ int32_t* u) {{ "
    f"const int32_t i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); (void)u; {body} }}\n"
    for n, body in enumerate(BODIES.values())
)
CALLS = Calls(
    "__vector__",
    "__gm__ int32_t* x, __gm__ int32_t* y, int32_t a, int32_t b, int32_t c",
    {name: f"asc_vf_call<f{n}>(cce::dim3(a, b, c), x, y, (__ubuf__ int32_t*)1024);" for n, name in enumerate(BODIES)},
    functions=FUNCTIONS,
)
X = np.random.default_rng(1).integers(-50, 50, 64).astype(np.int32)
I = np.arange(64)
LANE, WARP = I % 32, I // 32 * 32


def run(name: str, shape: tuple[int, int, int] = (64, 1, 1), schedule: str = "") -> np.ndarray:
    y = torch.full((64,), -7, dtype=torch.int32)
    CALLS(name, schedule, x=torch.from_numpy(X.copy()), y=y, a=shape[0], b=shape[1], c=shape[2])
    return y.numpy()


def moved(by: int, width: int = 32) -> np.ndarray:
    """The value `by` lanes on, one's own at the end of the group."""
    place = I + by
    return X[np.where((place >= 0) & (place // width == I // width), place, I)]


def warps(of: Callable[[np.ndarray], int]) -> np.ndarray:
    return np.repeat([of(X[:32]), of(X[32:])], 32)


def keyed(of: Callable[[np.ndarray], int]) -> np.ndarray:
    return np.concatenate([[of(np.append(X[k::4], -7)) for k in range(4)], np.full(60, -7)])


WANT = {
    "asc_shfl": X[WARP + 5],
    "asc_shfl width": X[I // 16 * 16 + 1],
    "asc_shfl_up": moved(-3),
    "asc_shfl_up width": moved(-3, 8),
    "asc_shfl_down": moved(3),
    "asc_shfl_down width": moved(3, 8),
    "asc_shfl_xor": X[I ^ 9],
    "asc_shfl_xor float": X[I ^ 1],
    "asc_shfl_xor 64": X[I ^ 2],
    "asc_reduce_add": warps(np.sum),
    "asc_reduce_max": warps(np.max),
    "asc_reduce_min": warps(np.min),
    "asc_reduce_add float": warps(np.sum),
    "asc_ballot": warps(lambda v: int(np.packbits(np.fmod(v, 3) == 0, bitorder="little").view(np.int32)[0])),
    "asc_syncthreads": X[::-1],
    "asc_threadfence": X[::-1],
    "asc_atomic_add": keyed(np.sum),
    "asc_atomic_sub": keyed(lambda v: -7 - v[:-1].sum()),
    "asc_atomic_max": keyed(np.max),
    "asc_atomic_min": keyed(np.min),
    "asc_atomic_exch": X,
    "asc_atomic_cas": np.where(I % 2, X, -7),
    "asc_atomic_add old": I,
    "asc_atomic_add float": np.full(64, np.trunc(X.sum() / 2)),
    "ended threads": np.where(I < 32, 32, -7),
}


@pytest.mark.parametrize("schedule", ["eager", "eager+threads"])
@pytest.mark.parametrize("name", WANT)
def test_a_call(name: str, schedule: str) -> None:
    np.testing.assert_array_equal(run(name, schedule=schedule), WANT[name])


@pytest.mark.parametrize("shape", [(64, 1, 1), (4, 16, 1), (2, 4, 8), (1, 1, 64), (5, 3, 2)])
def test_threads_have_three_dimensions_the_first_fastest(shape: tuple[int, int, int]) -> None:
    a, b, c = shape
    z, y, x = np.unravel_index(np.arange(a * b * c), (c, b, a))
    np.testing.assert_array_equal(run("threadIdx", shape)[: a * b * c], x + 100 * y + 1000 * z)
    np.testing.assert_array_equal(run("blockDim", shape)[: a * b * c], a + 100 * b + 1000 * c)
    assert (run("threadIdx", shape)[a * b * c :] == -7).all()


@pytest.mark.parametrize(
    "name, shape, message",
    [
        ("part of a warp", (64, 1, 1), "warp collective"),
        ("part at a barrier", (64, 1, 1), "divergence"),
        ("threadIdx", (65, 1, 1), "launch of 65 threads exceeds the function's launch bound of 64"),
        ("threadIdx", (64, 2, 1), "launch of 128 threads"),
        ("threadIdx", (0, 1, 1), "launch of 0 threads"),
        ("threadIdx", (64, 64, 1), "launch of 4096 threads; 1 to 2048"),
    ],
)
def test_misuse_is_named(name: str, shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        run(name, shape)


PROGRAM = Calls(
    "__vector__",
    "__gm__ uint8_t* x, __gm__ uint8_t* y",
    {
        **{
            f"{kind}": f"const {kind} v = asc_load_dev((__gm__ {kind}*)x + 3); asc_store_dev((__gm__ {kind}*)y + 1, "
            f"{kind}(v + {kind}(1)));"
            for kind in ("uint8_t", "uint16_t", "uint32_t", "uint64_t", "int32_t")
        },
        "block": "asc_store_dev((__gm__ int32_t*)y + block_idx, "
        "int32_t(block_idx) * 3 + int32_t(asc_get_sub_block_id()));",
        "load behind": "asc_store_dev(y, asc_load_dev(x + 64));",
        "store before": "asc_store_dev((__gm__ int32_t*)y - 1, 0);",
    },
)
KINDS = {"uint8_t": np.uint8, "uint16_t": np.uint16, "uint32_t": np.uint32, "uint64_t": np.uint64, "int32_t": np.int32}


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_reads_and_writes_words_of_each_width(kind: str) -> None:
    x = np.random.default_rng(2).integers(0, 256, 64).astype(np.uint8)
    y = torch.full((64,), 0xAA, dtype=torch.uint8)
    PROGRAM(kind, x=torch.from_numpy(x.copy()), y=y)
    want = np.full(64, 0xAA, np.uint8)
    want.view(KINDS[kind])[1] = x.view(KINDS[kind])[3] + KINDS[kind](1)
    np.testing.assert_array_equal(y.numpy(), want)


def test_blocks_have_numbers() -> None:
    y = torch.zeros(20, dtype=torch.uint8)
    PROGRAM("block", "", 5, x=torch.zeros(4, dtype=torch.uint8), y=y)
    assert y.view(torch.int32).tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("name", ["load behind", "store before"])
def test_the_program_stays_within_its_arguments(name: str) -> None:
    with pytest.raises(
        KernelFault, match="pipe S: asc_(load|store)_dev: . bytes of global memory outside every argument"
    ):
        PROGRAM(name, x=torch.zeros(64, dtype=torch.uint8), y=torch.zeros(64, dtype=torch.uint8))
