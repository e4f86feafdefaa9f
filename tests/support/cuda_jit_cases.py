"""Kernels and checks of `backends.cuda.jit` that run in a child process, with the fake of `fake_cuda`.

python cuda_jit_cases.py NAME
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings

import torch
import triton.language as tl

import fake_cuda
from deepinfer.backends.cuda import binaries, cache, jit
from deepinfer.backends.cuda.jit import jit as kernel
from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError, KernelError

SCALE: tl.constexpr = tl.constexpr(2.0)


@kernel
def double(x):
    return x * SCALE


@kernel
def scale(x_ptr, bias_ptr, out_ptr, n, stride: tl.int64, BLOCK: tl.constexpr = 128):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = double(tl.load(x_ptr + at * stride, mask=at < n))
    if bias_ptr is not None:
        y += tl.load(bias_ptr + at, mask=at < n)
    tl.store(out_ptr + at, y, mask=at < n)


@kernel
def named(size_ptr, grid, device, key, found, size, x, y, pack, stream, call, len: tl.int64, status: tl.constexpr):
    """Its parameters have the names that a launcher could want for itself."""
    total = grid + device + key + found + size + x + y + pack + stream + call + len + status
    tl.store(size_ptr, total.to(tl.float32))


@kernel
def underscored(x_ptr, _n):
    tl.store(x_ptr, _n)


DRIVER = fake_cuda.install()
X, OUT = fake_cuda.Tensor(torch.float32, 4096), fake_cuda.Tensor(torch.float32, 8192)


def raised(error: type[Exception], call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except error as caught:
        return str(caught)
    raise AssertionError(f"no {error.__name__}")


def launches() -> object:
    """One binary for all row counts and strides; others by dtype, alignment, presence; the bytes of the arguments."""
    before = cache.compilations
    for n in (1, 2, 16, 17, 2**31 - 1):
        for stride in (1, 16, 2**40):
            scale[(3, 2)](X, None, OUT, n, stride)
    one = cache.compilations - before
    scale[lambda given: (given["n"],)](X, X, OUT, 5, 1, BLOCK=256, num_warps=8)
    scale[(1,)](fake_cuda.Tensor(torch.float32, 4100), None, OUT, 5, 1)
    scale[(1,)](fake_cuda.Tensor(torch.bfloat16), None, OUT, 5, 1)
    scale[(0,)](X, None, OUT, 0, 1)
    notes = [(grid, threads, stream, data.hex()) for grid, threads, stream, data in DRIVER.launched]
    return {"one": one, "all": cache.compilations - before, "loaded": len(DRIVER.loaded), "launched": notes}


def names() -> object:
    """The bytes of arguments whose names a launcher could want for itself; and a name that is the launcher's."""
    named[(2, 3)](X, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2**40, status=12)
    grid, _, _, data = DRIVER.launched[-1]
    return {"grid": grid, "data": data.hex(), "refused": raised(KernelError, lambda: underscored[(1,)](X, 1))}


def warm() -> object:
    """What a second process does: it loads, and compiles nothing."""
    import triton.compiler.compiler as compiler

    calls = []
    original = compiler.compile
    compiler.compile = lambda *a, **k: calls.append(a) or original(*a, **k)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", cache.CacheWarning)
        scale[(1,)](X, None, OUT, 5, 1)
    said = [str(w.message) for w in caught if w.category is cache.CacheWarning]
    return {"compilations": cache.compilations, "calls": len(calls), "loaded": len(DRIVER.loaded), "warnings": said}


def damaged() -> object:
    """Each kind of damage to an entry of the cache, and what the next look at it does."""
    scale[(1,)](X, None, OUT, 5, 1)
    (entry,) = cache.folder().iterdir()
    cubin, facts = entry / "kernel.cubin", entry / "entry.json"
    whole, kept = cubin.read_bytes(), facts.read_text()
    said = {}
    for name, damage in {
        "flipped": lambda: cubin.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1])),
        "cut": lambda: cubin.write_bytes(whole[:-1]),
        "edited": lambda: facts.write_text(kept.replace('"shared": 0', '"shared": 1')),
        "empty": lambda: facts.write_text(""),
        "another shape": lambda: facts.write_text("[]"),
        "lost": cubin.unlink,
    }.items():
        damage()
        before = cache.compilations
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", cache.CacheWarning)
            types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "stride": "i64"}
            found = jit.binary_of(scale, 90, types, {"bias_ptr": None, "BLOCK": 128}, {})
        assert found.cubin[:4] == whole[:4] and (found.name, found.shared) == ("scale", 0)
        said[name] = (cache.compilations - before, [str(w.message) for w in caught if w.category is cache.CacheWarning])
    said["entry"] = (entry.name, sorted(path.name for path in cache.folder().iterdir()))
    return said


def keys() -> object:
    """The name of the entry of `scale` in each of the files that were named, and for other signatures of it."""
    found = []
    for path in sys.argv[2:]:
        spec = importlib.util.spec_from_file_location("changed", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(cache.key(module.scale, {"n": "i32"}, {"BLOCK": 128}, {}, 90))
    changed = [({"n": "i64"}, {"BLOCK": 128}, {}, 90), ({"n": "i32"}, {"BLOCK": 64}, {}, 90)]
    changed += [({"n": "i32"}, {"BLOCK": 128}, {"num_warps": 8}, 90), ({"n": "i32"}, {"BLOCK": 128}, {}, 100)]
    changed += [({"n": "i32"}, {"BLOCK": True}, {}, 90), ({"n": "i32"}, {"BLOCK": 1}, {}, 90)]
    return found, [cache.key(scale, *arguments) for arguments in changed]


def order() -> object:
    """The name of the entry of `scale`, in a module whose helper was looked at before and in one where it was not."""
    found = []
    for first in ("scale", "double"):
        spec = importlib.util.spec_from_file_location("again", __file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert getattr(module, first).cache_key
        found.append(cache.key(module.scale, {"n": "i32"}, {"BLOCK": 128}, {}, 90))
    return found


def frozen() -> object:
    """Nothing compiles in `no_compile`, a known signature still runs."""
    scale[(1,)](X, None, OUT, 5, 1)
    with binaries.no_compile("the engine serves"):
        scale[(1,)](X, None, OUT, 500, 7)
        message = raised(KernelError, lambda: scale[(1,)](X, None, OUT, 5, 1, BLOCK=512))
    scale[(1,)](X, None, OUT, 5, 1, BLOCK=512)
    return {"message": message}


def refusals() -> object:
    """Arguments that cannot be, before and after the first launch."""
    host = fake_cuda.Tensor(torch.float32, 0, -1)
    said = {
        "cpu": raised(InvalidArgumentError, lambda: scale[(1,)](host, None, OUT, 5, 1)),
        "range": raised(InvalidArgumentError, lambda: scale[(1,)](X, None, OUT, 2**31, 1)),
        "number": raised(InvalidArgumentError, lambda: scale[(1,)](X, None, OUT, X, 1)),
        "option": raised(InvalidArgumentError, lambda: scale[(1,)](X, None, OUT, 5, 1, num_warp=4)),
        "device": raised(
            InvalidArgumentError, lambda: scale[(1,)](X, None, fake_cuda.Tensor(torch.float32, 4096, 1), 5, 1)
        ),
    }
    scale[(1,)](X, None, OUT, 5, 1)
    said["range later"] = raised(InvalidArgumentError, lambda: scale[(1,)](X, None, OUT, -(2**31) - 1, 1))
    DRIVER.status = 1
    said["refused"] = raised(KernelError, lambda: scale[(1, 99999)](X, None, OUT, 5, 1))
    DRIVER.status = 700
    said["fault"] = raised(DeviceFaultError, lambda: scale[(1,)](X, None, OUT, 5, 1))
    return said


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
