"""Matrix instructions of the native kernels for SM100, by case: JSON of sets of PTX instructions. Needs no GPU."""

from __future__ import annotations

import json
import re
import sys

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from deepinfer.backends.cuda import grouped_compiles, linear_compiles
from deepinfer.backends.cuda.compile_list import CompileCase

CASES = ("wq_b, 16 rows, native", "wo_b, 128 rows, native", "w13, tiles of 16, native")
"""The smallest and a large tile of FP8 weights, the smallest of FP4 ones."""


def instructions(case: CompileCase) -> list[str]:
    """Kinds of `tcgen05.mma` in a case's PTX."""
    types, constants, options = case.arguments()
    kernel = case.kernel
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(n),): v for n, v in constants.items()})
    text = compile(source, target=GPUTarget("cuda", 100, 32), options=options).asm["ptx"]
    return sorted(set(re.findall(r"tcgen05\.mma\.\S*", text)))


def main() -> int:
    cases = [*linear_compiles.COMPILES, *grouped_compiles.COMPILES]
    found = {label: instructions(next(c for c in cases if c.label == label)) for label in CASES}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
