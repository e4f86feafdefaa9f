"""Bounded replay: what a truncated prompt leaves behind, in either mode, in any chunks and with any neighbours."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.hal.errors import ConfigError, InvalidArgumentError, NotSupportedError
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.config import ModelConfig
from deepinfer.model.dummy import write_dummy
from deepinfer.model.loading import load_model
from deepinfer.model.transformer import Model
from deepinfer.model.truncation import MODES, Truncation
from deepinfer.ops import layouts
from golden_adapter import entries
from guard import Guard, Inline
from released import GOLDEN_CHECKPOINT
from schedules import Driver, Track, assert_same_logits, cuts

KEEP = 22  # the least: window 16 and backtrack 6
LENGTH = 81  # odd: an open ratio-2 group; candidate blocks bite from 65 on
PROMPT = 75


class Truncating(Driver):
    """A driver whose sequences have a prompt of which the last `keep` tokens are kept, by the track's number."""

    def __init__(self, model: Model, mode: str, keep: int = KEEP, **options: Any) -> None:
        super().__init__(model, **options)
        self.truncation = Truncation(mode, keep)
        self.batches: list[Batch] = []

    def step(
        self, work: Sequence[tuple[Track, int]], *, rows: int | None = None, prompts: dict[int, int] | None = None
    ) -> None:
        """As `Driver.step`, logits of the rows that are kept. `prompts`: slot -> prompt length, PROMPT by default."""
        slices = []
        for t, n in work:
            keep = self.truncation.keep_from((prompts or {}).get(t.slot, PROMPT))
            end = t.done + n
            wanted = list(range(max(t.done, keep), end))
            slices.append(SequenceSlice(t.tokens, t.done, end, t.slot, t.pages, wanted, keep_from=keep))
        text = self.model.config.text
        batch = Batch.build(slices, text, self.model.device, rows=rows, compact=self.truncation.compact)
        self.batches.append(batch)
        logits = iter(self.model.forward(batch, self.caches))
        for (track, n), part in zip(work, slices, strict=True):
            for position in part.logits:
                track.logits[position] = next(logits).clone()
            track.done += n


def visible_bytes(driver: Driver, track: Track, first: int) -> dict[str, torch.Tensor]:
    """Everything of a sequence that later rows may read, if windows in consumer and draft layers begin at `first`."""
    found = {}
    text = driver.model.config.text
    main, index = layouts.LAYOUTS[driver.caches.layout.record], layouts.FP4_32_INDEX
    for kind, layout, sections, channels in (
        ("entries", main, driver.caches.main, text.head_dim),
        ("keys", index, driver.caches.index, text.index_head_dim),
    ):
        for owner in sections:
            ratio = driver.model.topology.layers[owner].ratio
            pages = sections[owner][[0, *track.pages]]
            found[f"{kind} {owner}"] = torch.from_numpy(entries(layout, pages, channels, ratio, track.done // ratio))
    slots = driver.caches.layout.ring_slots
    for name, ring in driver.caches.rings.items():
        kind, _, number = name.partition(".")
        consumer = kind == "mtp" or int(number) >= driver.model.topology.n_prefill_layer
        oldest = max(0, track.done - slots, first if consumer else 0)
        found[name] = ring[track.slot, [p % slots for p in range(oldest, track.done)]].clone()
    for owner, pairs in driver.caches.compressor_rings.items():
        slots = pairs.shape[1]
        found[f"pairs {owner}"] = pairs[track.slot, [p % slots for p in range(max(0, track.done - slots), track.done)]]
    return found


def assert_same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert torch.equal(got[name], expected), name


@pytest.fixture(scope="module")
def model() -> Model:
    reference.backend.load()
    return load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True)


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return np.random.default_rng(7).integers(3, 490, LENGTH).tolist()


@pytest.fixture(scope="module")
def alone(model: Model, tokens: list[int]) -> dict[str, tuple[Track, dict[str, torch.Tensor]]]:
    """The prompt at once, then six tokens one by one, in every mode."""
    found = {}
    for mode in MODES:
        driver = Truncating(model, mode)
        track = driver.run(tokens, [PROMPT, *[1] * (LENGTH - PROMPT)])
        found[mode] = track, visible_bytes(driver, track, PROMPT - KEEP)
        assert [b.boundary is None for b in driver.batches] == [mode == "off"] + [True] * 6, "decoding has no boundary"
    return found


def test_both_modes_agree_bit_for_bit(alone: dict[str, Any]) -> None:
    (mask, mask_bytes), (compact, compact_bytes) = alone["mask"], alone["compact"]
    assert sorted(mask.logits) == sorted(compact.logits) == list(range(PROMPT - KEEP, LENGTH))
    assert_same_logits(compact, mask)
    assert_same(compact_bytes, mask_bytes)


def test_producers_and_compressed_entries_are_those_of_the_exact_model(alone: dict[str, Any]) -> None:
    (exact, exact_bytes), (track, found) = alone["off"], alone["compact"]
    # Entries that the tokens behind the prompt completed come from rows that are not exact any more.
    changed = {name for name, value in found.items() if not torch.equal(value, exact_bytes[name])}
    assert changed >= {"layers.7", "layers.9", "mtp.0", "mtp.1"}
    assert not changed & {f"layers.{n}" for n in range(7)}, "what enters layer 6 is exact, and so is its window"
    assert not any(name.startswith(("pairs", "entries", "keys")) for name in changed)
    assert not torch.equal(exact.logits[PROMPT - 1], track.logits[PROMPT - 1]), "the prompt is long enough to matter"
    # The first kept row sees no window key but its own.
    assert not torch.equal(exact.logits[PROMPT - KEEP], track.logits[PROMPT - KEEP])


@pytest.mark.parametrize("keep", [LENGTH, 400])
@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_a_prompt_that_is_kept_whole_is_exact(
    model: Model, tokens: list[int], alone: dict[str, Any], mode: str, keep: int
) -> None:
    driver = Truncating(model, mode, keep)
    track = driver.add(tokens)
    for n in (LENGTH - 20, 20):
        driver.step([(track, n)], prompts={track.slot: LENGTH})
    assert {p: alone["off"][0].logits[p] for p in track.logits}.keys() == track.logits.keys()
    assert_same_logits(track, alone["off"][0])
    exact = Truncating(model, "off")
    other = exact.run(tokens)
    assert all(torch.equal(a, b) for a, b in zip(driver.state(track), exact.state(other), strict=True))


def test_keeping_all_that_windows_reach_is_exact_at_the_end(
    model: Model, tokens: list[int], alone: dict[str, Any]
) -> None:
    """Four consumer layers look back 15 positions each: 61 rows rebuild the last one exactly, 60 do not."""
    last = PROMPT - 1
    for keep, same in ((61, True), (60, False)):
        track = Truncating(model, "compact", keep).run(tokens, [PROMPT])
        assert torch.equal(track.logits[last], alone["off"][0].logits[last]) == same


SCHEDULES = {
    "token by token": ("compact", [PROMPT - KEEP - 1, *[1] * 9, 20]),
    "odd chunks": ("mask", cuts(LENGTH, 17, 13, 1, 30)),
    "at the first kept row": ("compact", [PROMPT - KEEP, KEEP, 6]),
    "before the first kept row": ("compact", [PROMPT - KEEP - 1, 2, KEEP - 1, 6]),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "odd chunks")) for n in SCHEDULES])
def test_chunks_change_nothing(model: Model, tokens: list[int], alone: dict[str, Any], name: str) -> None:
    mode, chunks = SCHEDULES[name]
    driver = Truncating(model, mode, poison=0x7F)
    track = driver.run(tokens, chunks)
    assert_same_logits(track, alone["mask"][0])
    assert_same(visible_bytes(driver, track, PROMPT - KEEP), alone["mask"][1])


@pytest.mark.parametrize("mode", [pytest.param("mask", marks=pytest.mark.slow), "compact"])
def test_neighbours_and_padding_change_nothing(
    model: Model, tokens: list[int], alone: dict[str, Any], mode: str
) -> None:
    rng = np.random.default_rng(8)
    for place in (0, 2):
        driver = Truncating(model, mode, poison=0xFF)
        mine = driver.add(tokens)
        rest = [driver.add(rng.integers(3, 490, n).tolist()) for n in (1, 60)]
        # The long neighbour is kept whole, the short one is a prompt of one token.
        prompts = {rest[0].slot: 1, rest[1].slot: 20}
        for n, others, rows in ((30, (1, 25), None), (43, (0, 1), 48), (2, (0, 30), 40), (6, (0, 4), 16)):
            work = [(track, k) for track, k in zip(rest, others, strict=True) if k]
            work.insert(min(place, len(work)), (mine, n))
            driver.step(work, rows=rows, prompts=prompts)
        assert_same_logits(mine, alone["mask"][0])
        assert_same(visible_bytes(driver, mine, PROMPT - KEEP), alone["mask"][1])


def test_rows_taken_back_behind_a_prompt_leave_no_trace(model: Model, tokens: list[int], alone: dict[str, Any]) -> None:
    driver = Truncating(model, "compact", poison=0x7F)
    track = driver.run(tokens, [PROMPT])
    right = track.tokens.copy()
    track.tokens[PROMPT:] = 77
    driver.step([(track, 6)])
    track.tokens[:], track.done = right, PROMPT
    for _ in range(LENGTH - PROMPT):
        driver.step([(track, 1)])
    assert_same_logits(track, alone["mask"][0])


def test_dropped_rows_are_not_computed_and_write_no_ring(model: Model, tokens: list[int]) -> None:
    driver = Truncating(model, "compact", poison=0x55)
    track = driver.run(tokens[:PROMPT], [40])
    boundary = driver.batches[0].boundary
    assert boundary is not None and boundary.rows is not None and boundary.batch.rows == 0
    for name, ring in driver.caches.rings.items():
        untouched = bool((ring[track.slot] == 0x55).all())
        assert untouched == (name.startswith("mtp") or int(name.removeprefix("layers.")) >= 6), name
    driver.step([(track, PROMPT - 40)])
    boundary = driver.batches[1].boundary
    assert boundary is not None and boundary.batch.positions.tolist() == list(range(PROMPT - KEEP, PROMPT))


def test_the_rows_that_go_on_are_those_of_the_op(model: Model) -> None:
    """Kept rows and their metadata, against `replay_rows` and `step_metadata` for one rank."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        count = int(rng.integers(1, 5))
        ends = rng.integers(1, 120, count)
        starts = [int(rng.integers(0, end)) for end in ends]
        firsts = [int(rng.integers(0, start + 1)) for start in starts]
        keep = [int(rng.integers(0, 140)) for _ in ends]
        slices = [
            SequenceSlice(np.arange(e, dtype=np.int32), s, int(e), 1, [1], [], v, k)
            for s, e, v, k in zip(starts, ends, firsts, keep, strict=True)
        ]
        batch = Batch.build(slices, model.config.text, torch.device("cpu"), rows=int(ends.sum()), compact=True)
        if batch.boundary is None:
            continue
        assert batch.boundary.rows is not None
        kept = [max(0, min(int(e) - s, int(e) - k)) for s, e, k in zip(starts, ends, keep, strict=True)]
        query = torch.tensor([e - s for s, e in zip(starts, ends, strict=True)], dtype=torch.int32)
        left = torch.tensor(kept, dtype=torch.int32)
        contribution, inverse = ops.replay_rows(query, left, 1, 0, sum(kept), sum(kept))
        assert batch.boundary.rows.tolist() == contribution.tolist()
        assert inverse.tolist() == list(range(sum(kept)))
        here = batch.boundary.batch
        ratios = sorted(here.visible)
        want = ops.step_metadata(
            left,
            torch.tensor(ends, dtype=torch.int32),
            torch.tensor([max(v, k) for v, k in zip(firsts, keep, strict=True)], dtype=torch.int32),
            torch.tensor(ratios, dtype=torch.int32),
            sum(kept),
        )
        for name in ("positions", "row_seq", "first_key", "seq_start", "seq_end", "row_begin"):
            assert torch.equal(getattr(here, name), getattr(want, name)), name
        assert torch.equal(torch.stack([here.visible[r] for r in ratios]), want.visible)
        assert torch.equal(here.last_key, want.positions)


def test_no_computation_happens_outside_ops(model: Model, tokens: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model._fetcher, "_pool", Inline())
    part = SequenceSlice(np.array(tokens, np.int32), 0, 26, 1, [1], [25], keep_from=4)
    batch = Batch.build([part], model.config.text, model.device, compact=True)
    with Guard() as guard:
        model.forward(batch, model.new_caches(2, 2))
    assert guard.inside > 1000


# ---- resuming from what a store keeps


def resume(model: Model, tokens: list[int], start: int, mode: str, *, pairs: bool = False) -> tuple[Driver, Track]:
    """A prompt resumed at `start`: pages and producer rings come from an exact run, all else is poison."""
    exact = Driver(model)
    source = exact.run(tokens[:start])
    driver = Truncating(model, mode, poison=0x7F)
    track = driver.add(tokens)
    driver.caches.pages[track.pages] = exact.caches.pages[
        [*source.pages, *[0] * (len(track.pages) - len(source.pages))]
    ]
    stored = driver.caches.layout.stored_state_bytes
    driver.caches.state[track.slot, :stored] = exact.caches.state[source.slot, :stored]
    for owner, ring in driver.caches.compressor_rings.items():
        if pairs:
            ring[track.slot] = exact.caches.compressor_rings[owner][source.slot]
        else:
            ring[track.slot] = torch.nan
    track.done = start
    return driver, track


@pytest.mark.parametrize(("start", "mode"), [(PROMPT - KEEP - 1, "compact"), (40, "mask"), (PROMPT - KEEP, "compact")])
def test_resuming_without_consumer_rings_is_the_same_truncated_prompt(
    model: Model, tokens: list[int], alone: dict[str, Any], start: int, mode: str
) -> None:
    """Up to the first kept position; at an odd one with the open group's compressor ring, at an even one without."""
    driver, track = resume(model, tokens, start, mode, pairs=bool(start % 2))
    driver.step([(track, PROMPT - start)])
    driver.step([(track, LENGTH - PROMPT)])
    assert_same_logits(track, alone["mask"][0])
    assert_same(visible_bytes(driver, track, PROMPT - KEEP), alone["mask"][1])


def test_resuming_behind_the_first_kept_position_would_read_what_nobody_wrote(
    model: Model, tokens: list[int], alone: dict[str, Any]
) -> None:
    driver, track = resume(model, tokens, PROMPT - KEEP + 2, "compact")
    driver.step([(track, KEEP - 2)])
    assert not torch.equal(track.logits[PROMPT - 1], alone["mask"][0].logits[PROMPT - 1])


@pytest.mark.parametrize("start", [40, 41])
def test_valid_start_hides_every_window_key_before_it(model: Model, tokens: list[int], start: int) -> None:
    """Resumed from pages alone: as the whole sequence computed at once, rows from there on seeing no older keys."""
    text, end = model.config.text, 70
    whole, caches = np.array(tokens[:end], np.int32), model.new_caches(2, 2)
    wanted = list(range(start, end))
    batch = Batch.build([SequenceSlice(whole, 0, end, 1, [1], wanted)], text, model.device)
    first_key = batch.first_key.clone()
    first_key[start:] = start
    want = model.forward(replace(batch, first_key=first_key), caches)

    driver, track = resume(model, tokens[:end], start, "off", pairs=bool(start % 2))
    for ring in driver.caches.rings.values():
        ring[track.slot] = 0xFF
    got = []
    for first, last in ((start, start + 5), (start + 5, start + 6), (start + 6, end)):
        part = SequenceSlice(whole, first, last, track.slot, track.pages, list(range(first, last)), valid_start=start)
        got.append(model.forward(Batch.build([part], text, model.device), driver.caches))
    assert torch.equal(torch.cat(got), want)
    own = [p % driver.caches.layout.ring_slots for p in range(end - 16, end)]
    for name, ring in driver.caches.rings.items():
        assert torch.equal(ring[track.slot, own], caches.rings[name][1, own]), name


def test_valid_start_and_the_first_kept_position_act_together(model: Model) -> None:
    def first_keys(valid_start: int, keep_from: int, compact: bool) -> list[int]:
        part = SequenceSlice(np.zeros(40, np.int32), 30, 34, 1, [1], [], valid_start, keep_from)
        batch = Batch.build([part], model.config.text, torch.device("cpu"), compact=compact)
        assert batch.first_key.tolist() == [valid_start] * 4, "producer layers know nothing of what is kept"
        return (batch if batch.boundary is None else batch.boundary.batch).first_key.tolist()

    assert first_keys(25, 20, False) == [25] * 4 and first_keys(25, 28, False) == [28] * 4
    assert first_keys(25, 28, True) == [28] * 4 and first_keys(25, 32, True) == [32] * 2
    assert first_keys(0, 15, True) == [0] * 4, "no window of these rows reaches 15"
    assert first_keys(0, 16, True) == [16] * 4


# ---- other configurations


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN_CHECKPOINT / "config.json").read_text())
    return found


@pytest.fixture(scope="module")
def loaded(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Loads a model of generated weights whose text settings differ from the golden ones."""
    reference.backend.load()
    models: list[Model] = []

    def load(**changes: Any) -> Model:
        own = copy.deepcopy(values)
        own["text_config"] |= changes
        directory: Path = tmp_path_factory.mktemp("checkpoint") / "model"
        write_dummy(directory, own, seed=5)
        models.append(load_model(directory, identity_vocabulary=True))
        return models[-1]

    yield load
    for one in models:
        one.close()


def agree(model: Model, tokens: list[int], modes: Sequence[str]) -> list[dict[str, torch.Tensor]]:
    """Runs modes; mask and compact agree. What each leaves behind, seen from the end of the prompt on."""
    ran: dict[str, tuple[Driver, Track]] = {}
    for mode in modes:
        driver = Truncating(model, mode, poison=0 if mode == "off" else 0x7F)
        ran[mode] = driver, driver.run(tokens, [50, PROMPT - 50, 6])
    first = PROMPT - KEEP
    assert_same_logits(ran["compact"][1], ran["mask"][1])
    assert_same(visible_bytes(*ran["compact"], first), visible_bytes(*ran["mask"], first))
    return [visible_bytes(driver, track, first) for driver, track in ran.values()]


def test_several_sources_in_the_consumer_half_and_taps_of_producers(loaded: Any, tokens: list[int]) -> None:
    sources = [2, 4, 6, 7, 8]
    model = loaded(
        kv_source_layer_ids=[2, 4, 6, 8],
        index_k_source_layer_ids=sources,
        index_source_layer_ids=sources,
        dspark_target_layer_ids=[1, 4, 5],
    )
    exact, mask, compact = agree(model, tokens, MODES)
    # Every consumer source projects what enters the first consumer layer, and every row leaves taps: all exact.
    same = [name for name in exact if name.startswith(("entries", "keys", "mtp"))]
    assert {"entries 8", "keys 7", "mtp.1"} <= set(same)
    for name in same:
        assert torch.equal(exact[name], mask[name]) and torch.equal(mask[name], compact[name]), name
    assert not torch.equal(exact["layers.9"], mask["layers.9"])


def test_a_model_without_draft_layers(loaded: Any, tokens: list[int], values: dict[str, Any]) -> None:
    ratios = values["text_config"]["compress_ratios"][:10]
    model = loaded(num_nextn_predict_layers=0, compress_ratios=ratios, dspark_target_layer_ids=[])
    agree(model, tokens, ["mask", "compact"])


@pytest.mark.parametrize(
    "changes", [{"dspark_target_layer_ids": [5, 6, 9]}, {"engram_layer_ids": [1, 6]}], ids=["taps", "engram"]
)
def test_models_that_need_the_dropped_rows_refuse_compact_only(
    loaded: Any, tokens: list[int], changes: dict[str, Any]
) -> None:
    try:
        model = loaded(**changes)
    except ConfigError:
        pytest.fail("the configuration itself is sound")
    refusal = model.topology.compact_refusal
    assert refusal is not None
    driver = Truncating(model, "mask")
    assert driver.run(tokens[:60]).logits
    with pytest.raises(NotSupportedError, match=next(iter(changes))):
        Truncating(model, "compact").run(tokens[:20])
    Truncation("mask", KEEP).check(model.cache_layout.ring_slots, model.topology)
    with pytest.raises(NotSupportedError, match=f"M=compact.*{next(iter(changes))}.*use mask or off"):
        Truncation("compact", KEEP).check(model.cache_layout.ring_slots, model.topology, mode="M")


# ---- refusals


def test_settings_are_checked(model: Model, values: dict[str, Any]) -> None:
    rings, topology = model.cache_layout.ring_slots, model.topology
    for mode in ("mask", "compact"):
        Truncation(mode, KEEP).check(rings, topology)
        for keep in (KEEP - 1, 0, -5):
            with pytest.raises(InvalidArgumentError, match=f"KEEP: got {keep}; allowed: at least 22, .*M is {mode}"):
                Truncation(mode, keep).check(rings, topology, mode="M", keep_tokens="KEEP")
    for keep in (0, 7):
        Truncation("off", keep).check(rings, topology)
    with pytest.raises(InvalidArgumentError, match="M: got 'drop'; allowed: one of off, mask, compact"):
        Truncation("drop", KEEP).check(rings, topology, mode="M")
    released = ModelConfig.from_dict(values).topology
    assert released.n_prefill_layer == 6 and released.compact_refusal is None


def test_what_is_kept_depends_on_the_prompt_alone() -> None:
    assert Truncation("compact", 140).keep_from(1000) == 860
    assert Truncation("mask", 140).keep_from(140) == Truncation("mask", 140).keep_from(3) == 0
    assert Truncation("off", 140).keep_from(1000) == 0
    assert not Truncation().on and Truncation("mask", 1).on and not Truncation("mask", 1).compact


def test_slices_are_checked(model: Model) -> None:
    def build(compact: bool = True, **changes: Any) -> Batch:
        values = {"start": 0, "end": 8, "state_slot": 1, "pages": [1], "logits": [7], "keep_from": 5} | changes
        part = SequenceSlice(np.arange(3, 11, dtype=np.int32), **values)
        return Batch.build([part], model.config.text, torch.device("cpu"), compact=compact)

    with pytest.raises(InvalidArgumentError, match=r"slices\[0\].keep_from: got -1"):
        build(keep_from=-1)
    with pytest.raises(InvalidArgumentError, match=r"slices\[0\].logits: got \[4, 7\].*keep_from = 5 on; .*dropped"):
        build(logits=[4, 7])
    assert build(logits=[4, 7], compact=False).boundary is not None
    assert build(keep_from=100, logits=[]).boundary is not None
    assert build(keep_from=0).boundary is None
