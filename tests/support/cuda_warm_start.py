"""What a fresh process does on a GPU with kernels that were made before: prints JSON. Compiling is forbidden, except in
'self-test' and 'samples'.

python cuda_warm_start.py self-test        the kernel of the self-test
python cuda_warm_start.py samples [PART]   every small contract sample of the ops that have kernels; PART is 'i/n'
python cuda_warm_start.py again            the same, compiling forbidden
python cuda_warm_start.py released         the samples at released widths, compiling forbidden
"""

from __future__ import annotations

import json
import sys
from typing import Any

from deepinfer.backends.cuda import backend, binaries, cache
from deepinfer.hal.device import Device
from deepinfer.hal.errors import DeepInferError, SelfTestError


def self_test() -> dict[str, Any]:
    try:
        backend.self_test(Device("cuda"))
        right = True
    except SelfTestError:
        right = False
    return {"compilations": cache.compilations, "right": right}


def serve(released: bool, part: str = "0/1") -> dict[str, Any]:
    """How many calls were served, ops without a call, and what was said of those that were not."""
    import torch

    from cuda_calls import TARGET, on_cuda
    from cuda_sanitize import own_ops, small_samples
    from deepinfer.conformance.calls import Unsupported, call, samples, to_target
    from deepinfer.ops.spec import SPECS

    first, parts = map(int, part.split("/"))
    served: dict[str, int] = {}
    failed: dict[str, str] = {}
    with on_cuda():
        for op in own_ops()[first::parts]:
            served[op] = 0
            chosen = [s for s in samples(SPECS[op]) if s.label.startswith("real")] if released else small_samples(op)
            for sample in chosen:
                try:
                    call(SPECS[op], to_target(SPECS[op], sample.args, TARGET), TARGET)
                    served[op] += 1
                except Unsupported:
                    continue
                except DeepInferError as error:
                    failed[f"{op}, {sample.label}"] = str(error)[:600]
        torch.cuda.synchronize()
    return {
        "compilations": cache.compilations,
        "served": sum(served.values()),
        "ops": sorted(op for op, count in served.items() if count),
        "without": sorted(op for op, count in served.items() if not count),
        "failed": failed,
    }


def main() -> dict[str, Any]:
    what = sys.argv[1]
    if what == "self-test":
        return self_test()
    if what == "samples":
        return serve(False, *sys.argv[2:])
    binaries.forbid_compiling("this process must start warm")
    return serve(what == "released")


if __name__ == "__main__":
    print(json.dumps(main()))
