"""The image tower against the golden embeddings, against its definition in float64, and image by image."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import golden_adapter
from deepinfer.model.vision import FittedImage, decode_image, fit_image, plan_resize, tower
from released import GOLDEN_CHECKPOINT

pytest.importorskip("PIL", reason="needs the images extra")
GOLDEN = GOLDEN_CHECKPOINT.parent


@pytest.fixture(scope="module")
def adapter() -> golden_adapter.Adapter:
    return golden_adapter.factory(str(GOLDEN_CHECKPOINT))


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    found = {}
    for file in GOLDEN_CHECKPOINT.glob("*.safetensors"):
        found |= {k: v.double() for k, v in load_file(file).items() if k.startswith(("vision", "aligner"))}
    return found


def random_image(adapter: Any, width: int, height: int, seed: int = 0) -> FittedImage:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return fit_image(pixels, plan_resize(width, height, adapter.model.config.vision))


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).square().mean().sqrt() / want.square().mean().sqrt())


@pytest.mark.parametrize("name", ["one image", "two images"])
def test_the_golden_embeddings(adapter: Any, name: str) -> None:
    """Pixels to embeddings, by an independent implementation: they differ by roundings to bf16 and no more."""
    sequences = json.loads((GOLDEN / "golden.json").read_text())["sequences"]
    number, sequence = next((i, s) for i, s in enumerate(sequences) if s["name"] == name)
    want = load_file(GOLDEN / "golden.safetensors")[f"s{number}.image_rows"].double()
    ids, spans = adapter.expand(sequence["ids"], [str(GOLDEN / file) for file in sequence["images"]])
    assert ids == sequence["expanded_ids"]
    got = torch.cat([span.embeds for span in spans])
    assert got.shape == want.shape and relative(got, want) < 0.01
    assert (got.double() - want).abs().max() < 0.05


def by_definition(image: FittedImage, w: dict[str, torch.Tensor], config: Any) -> torch.Tensor:
    """The whole tower in float64, without any rounding in between."""
    plan, p, heads = image.plan, config.patch_size, config.num_attention_heads
    canvas = torch.full((plan.height, plan.width, 3), 127, dtype=torch.float64)
    height, width = image.pixels.shape[:2]
    canvas[image.top : image.top + height, image.left : image.left + width] = torch.from_numpy(image.pixels).double()
    canvas = (canvas / 255 - 0.5) / 0.5
    patches = torch.stack(
        [
            canvas[y * p : (y + 1) * p, x * p : (x + 1) * p].permute(2, 0, 1).flatten()
            for y in range(plan.rows)
            for x in range(plan.columns)
        ]
    )

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt() * w[name]

    d = config.hidden_size // heads
    turn = torch.tensor([config.rope_theta ** (-2 * i / (d // 2)) for i in range(d // 4)], dtype=torch.float64)
    rows, columns = (part.flatten().double() for part in torch.meshgrid(
        torch.arange(plan.rows), torch.arange(plan.columns), indexing="ij"
    ))  # fmt: skip
    angle = torch.cat((rows[:, None] * turn, columns[:, None] * turn), 1)[:, None]

    def rotate(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)

    x = patches @ w["vision.patch_embed.proj.weight"].T + w["vision.patch_embed.proj.bias"]
    for number in range(config.num_hidden_layers):
        b = f"vision.blocks.{number}"
        qkv = norm(x, f"{b}.norm1.weight") @ w[f"{b}.attn.wqkv.weight"].T + w[f"{b}.attn.wqkv.bias"]
        q, k, v = (part.unflatten(1, (heads, d)) for part in qkv.chunk(3, 1))
        score = torch.einsum("qhd,khd->hqk", rotate(q), rotate(k)) * d**-0.5
        o = torch.einsum("hqk,khd->qhd", score.softmax(-1), v).flatten(1)
        x = x + o @ w[f"{b}.attn.wo.weight"].T + w[f"{b}.attn.wo.bias"]
        gate, up = (norm(x, f"{b}.norm2.weight") @ w[f"{b}.mlp.w1.weight"].T).chunk(2, 1)
        x = x + (torch.nn.functional.silu(gate) * up) @ w[f"{b}.mlp.w2.weight"].T
    x = norm(x, "vision.norm.weight").view(plan.rows, plan.columns, -1)
    s = config.downsample_ratio
    vectors = []
    for y in range(plan.token_rows):
        for z in range(plan.token_columns):
            block = torch.zeros((s, s, x.shape[2]), dtype=torch.float64)
            part = x[y * s : (y + 1) * s, z * s : (z + 1) * s]
            block[: part.shape[0], : part.shape[1]] = part
            vectors.append(block.permute(2, 0, 1).flatten())
    hidden = torch.nn.functional.gelu(torch.stack(vectors) @ w["aligner.w1.weight"].T + w["aligner.w1.bias"])
    return hidden @ w["aligner.w2.weight"].T + w["aligner.w2.bias"]


SIZES = [(100, 80), (37, 140), (300, 40), (90, 150), (1, 500), (2000, 1300)]


@pytest.mark.parametrize("size", SIZES)
def test_the_definition(adapter: Any, weights: dict[str, torch.Tensor], size: tuple[int, int]) -> None:
    """Odd grids, margins of gray, a wide and a high image, one that is shrunk to the most tokens.

    The definition rounds nothing; some twenty roundings to bf16 on the way, 2^-9 each, move the result by 1 %.
    """
    image = random_image(adapter, *size)
    (got,) = adapter.model.vision.encode([image])
    assert relative(got, by_definition(image, weights, adapter.model.config.vision)) < 0.02


def test_an_image_depends_on_itself_alone(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, among others, in another order, and cut into several passes: the same bits."""
    images = [random_image(adapter, *size, seed=i) for i, size in enumerate(SIZES[:5])]
    vision = adapter.model.vision
    alone = [vision.encode([image])[0] for image in images]

    def check(got: Sequence[torch.Tensor], order: Sequence[int]) -> None:
        assert len(got) == len(order)
        assert all(torch.equal(a, alone[i]) for a, i in zip(got, order, strict=True))

    check(vision.encode(images), range(5))
    check(vision.encode([images[i] for i in (3, 0, 4, 3)]), (3, 0, 4, 3))
    passes = []
    original = vision._run
    monkeypatch.setattr(vision, "_run", lambda group: passes.append(len(group)) or original(group))
    monkeypatch.setattr(tower, "PATCHES_AT_ONCE", 100)
    check(vision.encode(images), range(5))
    assert len(passes) > 1 and sum(passes) == 5
    assert vision.encode([]) == []


def test_every_pixel_counts_and_other_images_do_not(adapter: Any) -> None:
    image, other = random_image(adapter, 100, 80), random_image(adapter, 100, 80, seed=1)
    (base,) = adapter.model.vision.encode([image])
    changed = image.pixels.copy()
    changed[-1, -1, 2] ^= 0x80
    (moved,) = adapter.model.vision.encode([FittedImage(changed, image.left, image.top, image.plan)])
    assert not torch.equal(moved[0], base[0]), "the first token sees the last pixel"
    assert not torch.equal(adapter.model.vision.encode([other])[0], base)


def test_files_of_one_picture_give_one_embedding(adapter: Any) -> None:
    data = Path(GOLDEN / "image_0.png").read_bytes()
    pixels = decode_image(data)
    plan = plan_resize(pixels.shape[1], pixels.shape[0], adapter.model.config.vision)
    first, second = (adapter.model.vision.encode([fit_image(p, plan)])[0] for p in (pixels, pixels.copy()))
    assert torch.equal(first, second)
