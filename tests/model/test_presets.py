import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from deepinfer.hal import env, errors
from deepinfer.model import engram_tables
from deepinfer.model.config import load_config
from deepinfer.model.names import inventory
from deepinfer.model.presets import cache, ensure_preset, make_checkpoint
from deepinfer.model.presets.vocabulary import IMAGE, NOISE
from deepinfer.model.tokenizer import Tokenizer

DTYPES = {
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e8m0fnu: "F8_E8M0",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("tiny", 0, tmp_path_factory.mktemp("made") / "tiny")


@pytest.fixture
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DEEPINFER_CACHE_DIR", str(tmp_path / "cache"))
    env.rearm("DEEPINFER_CACHE_DIR")
    yield tmp_path / "cache"
    monkeypatch.undo()
    env.rearm("DEEPINFER_CACHE_DIR")


def digests(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


def read_all(directory: Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for shard in sorted(directory.glob("*.safetensors")):
        with safe_open(shard, "pt") as file:
            for name in file.keys():
                assert name not in tensors
                tensors[name] = file.get_tensor(name)
    return tensors


def test_files_of_the_directory(tiny: Path) -> None:
    assert sorted(file.name for file in tiny.iterdir()) == [
        "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip
    generation = json.loads((tiny / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"], generation["pad_token_id"]) == (0, 1, 2)


def test_every_tensor_of_the_inventory_and_no_other(tiny: Path) -> None:
    specs = inventory(load_config(tiny))
    found = {name: (DTYPES[tensor.dtype], tuple(tensor.shape)) for name, tensor in read_all(tiny).items()}
    assert found == {name: (spec.dtype, spec.shape) for name, spec in specs.items()}
    # Vision tower and draft head are there.
    assert {"vision.patch_embed.proj.weight", "mtp.1.markov_head.head.weight"} <= found.keys()


def test_index_lists_what_the_shards_hold(tiny: Path) -> None:
    index = json.loads((tiny / "model.safetensors.index.json").read_text())
    total = 0
    for shard in tiny.glob("*.safetensors"):
        with safe_open(shard, "pt") as file:
            names = set(file.keys())
            total += sum(file.get_tensor(name).nbytes for name in names)
        assert names == {name for name, where in index["weight_map"].items() if where == shard.name}
        assert all(name.removesuffix("scale") + "weight" in names for name in names if name.endswith(".scale"))
    assert index["metadata"]["total_size"] == total


def test_derived_settings_follow_the_tokenizer_written(tiny: Path) -> None:
    config = load_config(tiny)
    text = config.text
    tokenizer = Tokenizer.load(tiny, vocab_size=text.vocab_size, image_token_id=config.image_token_id)
    assert config.image_token_id == tokenizer.special_id(IMAGE)
    assert text.dspark_noise_token_id == tokenizer.special_id(NOISE)
    assert text.vocab_size == len(json.loads((tiny / "tokenizer.json").read_text())["model"]["vocab"]) + 17
    vocabulary = engram_tables.load_vocabulary(tiny, text.vocab_size, text.engram_compressed_vocab_size)
    assert vocabulary.size < text.vocab_size  # not the identity: spellings do fall together
    upper, lower = tokenizer.encode("H", bos=False), tokenizer.encode("h", bos=False)
    assert upper != lower and vocabulary.lookup[upper[0]] == vocabulary.lookup[lower[0]]
    engram_tables.engram_tables(
        text.engram_layer_ids,
        vocab_size=text.engram_vocab_size,
        max_ngram=text.engram_max_ngram_size,
        heads=text.engram_n_heads,
        compressed_size=text.engram_compressed_vocab_size,
        declared_rows=text.engram_num_embeddings,
    )


def test_same_seed_same_bytes_other_seed_other_weights(tiny: Path, tmp_path: Path) -> None:
    again = digests(make_checkpoint("tiny", 0, tmp_path / "again"))
    other = digests(make_checkpoint("tiny", 1, tmp_path / "other"))
    first = digests(tiny)
    assert again == first
    changed = {name for name in first if first[name] != other[name]}
    assert changed == {name for name in first if name.endswith(".safetensors")}


def test_number_of_shards_changes_no_tensor(tiny: Path, tmp_path: Path) -> None:
    one, many = (
        make_checkpoint("tiny", 0, tmp_path / "1", shards=1),
        make_checkpoint("tiny", 0, tmp_path / "5", shards=5),
    )
    assert len(list(one.glob("*.safetensors"))) == 1 and len(list(many.glob("*.safetensors"))) == 5
    tensors = read_all(tiny)
    for directory in (one, many):
        for name, tensor in read_all(directory).items():
            assert torch.equal(tensor.view(torch.uint8), tensors[name].view(torch.uint8)), name


def test_control_tokens_are_unlikely_by_construction(tiny: Path) -> None:
    head = read_all(tiny)["head.weight"].float().numpy()
    tokenizer = Tokenizer.load(tiny)
    control = sorted(tokenizer.control_ids - set(tokenizer.span_ids) - {tokenizer.eos_id})
    broken = tokenizer.encode("ü", bos=False)[0]
    assert np.all(head[[*control, broken], 0] < -10)
    assert np.all(head[tokenizer.encode("the mill and the clock", bos=False), 0] > 0)
    assert 0 < head[tokenizer.eos_id, 0] < 4.5  # rare next to the ten likely tokens of a row, but possible


def test_draft_correction_favours_what_follows(tiny: Path) -> None:
    tensors = read_all(tiny)
    embed, head = (tensors[f"mtp.1.markov_head.{part}.weight"].float() for part in ("embed", "head"))
    added = embed @ head.T
    tokenizer = Tokenizer.load(tiny)
    pairs = [tokenizer.encode(text, bos=False) for text in ("Once upon", " of the", " she had")]
    assert all(len(pair) == 2 for pair in pairs)
    assert all(added[first, second] > 0.8 for first, second in pairs)
    assert 0.1 < added.std() < 1.5


def test_quantised_scales_differ_between_blocks_and_use_the_range(tiny: Path) -> None:
    tensors = read_all(tiny)
    for name in ("layers.3.attn.wq_b", "layers.5.ffn.shared_experts.w1", "layers.4.engram.wkv"):
        weight, scale = tensors[f"{name}.weight"].float(), tensors[f"{name}.scale"].view(torch.uint8)
        assert len(scale.unique()) > 1
        assert weight.isfinite().all()
        blocks = weight.abs().reshape(scale.shape[0], 32, scale.shape[1], 32).amax(dim=(1, 3))
        assert (blocks >= 224).all()  # the smallest scale that does not saturate
    packed = tensors["layers.3.ffn.experts.2.w1.weight"].view(torch.uint8)
    assert len(packed.unique()) > 200
    assert len(tensors["layers.3.ffn.experts.2.w1.scale"].view(torch.uint8).unique()) > 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("huge", 0), "preset.*tiny, kernel"),
        (("tiny", -1), "seed.*-1"),
        (("tiny", True), "seed"),
        (("tiny", 0.5), "seed"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: tuple[str, int], message: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        make_checkpoint(*arguments, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(errors.InvalidArgumentError, match=message):
        ensure_preset(*arguments)


def test_directory_with_files_is_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    (tmp_path / "model-00001-of-00009.safetensors").write_text("stale")
    with pytest.raises(errors.InvalidArgumentError, match=r"directory.*empty"):
        make_checkpoint("tiny", 0, tmp_path)
    make_checkpoint("tiny", 0, tmp_path, force=True)
    assert (tmp_path / "notes.txt").read_text() == "keep"
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    with pytest.raises(errors.InvalidArgumentError, match="directory"):
        make_checkpoint("tiny", 0, tmp_path / "notes.txt")


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    make_checkpoint("tiny", 0, tmp_path / "new", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == len(calls)
    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))


# ---- the cache


@pytest.fixture(autouse=True)
def _copy_instead_of_making(request: pytest.FixtureRequest, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache tests only need some checkpoint; copying one is faster than drawing it."""
    if "cache_root" in request.fixturenames:

        def copy(preset: str, seed: int, directory: Path, *, progress: object = None) -> Path:
            return Path(shutil.copytree(tiny, directory))

        monkeypatch.setattr(cache, "make_checkpoint", copy)


def test_preset_is_made_once(cache_root: Path) -> None:
    first = ensure_preset("tiny")
    stamp = (first / "config.json").stat().st_mtime_ns
    assert ensure_preset("tiny") == first and first.is_relative_to(cache_root)
    assert (first / "config.json").stat().st_mtime_ns == stamp
    assert ensure_preset("tiny", 7) != first
    assert not [file for file in first.parent.iterdir() if file.name.startswith(".")]


def test_damaged_entry_is_made_again(cache_root: Path) -> None:
    first = ensure_preset("tiny")
    (first / "model-00002-of-00002.safetensors").unlink()
    assert ensure_preset("tiny") == first
    assert (first / "model-00002-of-00002.safetensors").is_file()


def test_other_code_makes_another_entry(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ensure_preset("tiny")
    monkeypatch.setattr(cache, "_code_key", lambda: "0" * 12)
    assert ensure_preset("tiny").name == "tiny-seed0-" + "0" * 12 != first.name


def test_makers_that_start_together_share_one_entry(cache_root: Path) -> None:
    start = threading.Barrier(3)

    def make() -> Path:
        start.wait()
        return ensure_preset("tiny")

    with ThreadPoolExecutor(3) as pool:
        paths = {future.result() for future in [pool.submit(make) for _ in range(3)]}
    assert len(paths) == 1
    assert list((cache_root / "checkpoints").iterdir()) == list(paths)


def test_unwritable_cache_names_the_variable(cache_root: Path) -> None:
    cache_root.write_text("a file where the directory should be")
    with pytest.raises(errors.CheckpointError, match="DEEPINFER_CACHE_DIR"):
        ensure_preset("tiny")


def test_disk_that_fills_up_is_one_typed_error(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "make_checkpoint", full)
    with pytest.raises(errors.CheckpointError, match="No space left"):
        ensure_preset("tiny")
    assert not list((cache_root / "checkpoints").iterdir())


def test_cache_directory_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPINFER_CACHE_DIR", raising=False)
    env.rearm("DEEPINFER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_directory() == Path("/somewhere/deepinfer")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # not valid: to be ignored
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.cache_directory() == Path("/home/someone/.cache/deepinfer")
    env.rearm("DEEPINFER_CACHE_DIR")


def test_every_file_is_readable_by_those_who_may_read_the_others(tmp_path: Path) -> None:
    make_checkpoint("tiny", 0, tmp_path)
    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1
