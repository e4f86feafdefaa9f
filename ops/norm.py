"""Root-mean-square normalisation."""

from __future__ import annotations

from torch import Tensor

from . import layer_samples as samples
from .numerics import Rounded
from .spec import BF16, Cost, define, result, scalar, tensor

RMS_NORM = define(
    "rms_norm",
    version=0,
    family="norm",
    args=[tensor("x", "T D", BF16, layout="rows"), tensor("weight", "D", BF16), scalar("eps", float, low=0)],
    outs=[result("y", "T D", BF16)],
    dynamic="T",
    semantics="""y = bf16(x * rsqrt(mean(x^2) + eps) * weight), products from left to right in fp32, one rounding at
        the end. The mean is a fixed tree over D. A zero row gives zeros. If the squares overflow fp32 (elements above
        about 1e19), finite elements give zero; a row with infinity gives NaN there, a row with NaN is NaN
        throughout.""",
    numerics=Rounded(ulp=1),
    cost=lambda d: Cost(flops=4 * d["T"] * d["D"], bytes=4 * d["T"] * d["D"] + 2 * d["D"]),
    samples=samples.rms_norm,
)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """Normalise rows by their root mean square.

    Args:
        x: bf16 [T, D], rows may be strided. weight: bf16 [D], the final multiplier (no +1). eps: added to the mean.

    Returns:
        bf16 [T, D].
    """
    return RMS_NORM.run(x, weight, eps, out)  # type: ignore[no-any-return]
