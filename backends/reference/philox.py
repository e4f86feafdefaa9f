"""Philox4x32-10, the counter-based generator behind every random number (Salmon et al., SC11).

32-bit words are held in int64 tensors, since torch has no full set of unsigned 32-bit operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .portable_math import integer

ROUNDS = 10
MULTIPLIERS = torch.tensor((0xD2511F53, 0xCD9E8D57)).view(2, 1, 1)
WEYL = torch.tensor((0x9E3779B9, 0xBB67AE85)).view(2, 1, 1)

_KEY_STEPS = torch.arange(ROUNDS).view(ROUNDS, 1, 1, 1) * WEYL
_MASK = integer(0xFFFFFFFF, torch.int64)
_HALF = integer(32, torch.int64)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Four random words per counter.

    Args:
        counter: words 0..3, int64 in [0, 2**32), broadcast against each other to [R, N].
        key: words 0 and 1, [R, 1] int64 in [0, 2**32).

    Returns:
        [R, N, 4] int64 in [0, 2**32).
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    even, odd = torch.stack((c0, c2)), torch.stack((c1, c3))
    multipliers, steps = MULTIPLIERS.to(even.device), _KEY_STEPS.to(even.device)
    keys = (torch.stack(key) + steps).bitwise_and_(_MASK).unbind(0)
    for round_key in keys:
        # The 64-bit product wraps in int64; its upper half comes out right after the mask. `odd` keeps whole products:
        # only its lower half survives the mask either.
        product = (even * multipliers).flip(0)
        even = (product >> _HALF).bitwise_xor_(odd).bitwise_xor_(round_key).bitwise_and_(_MASK)
        odd = product
    return torch.stack((even[0], odd[0], even[1], odd[1]), dim=-1).bitwise_and_(_MASK)


def draw_words(seeds: Tensor, positions: Tensor, purpose: int, count: int) -> Tensor:
    """The first `count` random words of each row's stream.

    Key = the row's seed; counter = (position, low and high half; purpose; lane). Word i of the stream is word i mod 4
    of lane i // 4.

    Args:
        seeds: [L] int64, bits of the unsigned 64-bit seeds.
        positions: [L] int64, index in the whole sequence of the token drawn.
        purpose: see `ops.sampling.Purpose`.
        count: words wanted.

    Returns:
        [L, count] int64 in [0, 2**32).
    """
    seeds, positions = seeds.unsqueeze(1), positions.unsqueeze(1)
    lanes = torch.arange(-(-count // 4), device=seeds.device).unsqueeze(0)
    counter = (positions & _MASK, (positions >> _HALF) & _MASK, torch.full_like(positions, purpose), lanes)
    words = philox(counter, (seeds & _MASK, (seeds >> _HALF) & _MASK))
    return words.flatten(1)[:, :count]
