"""Drafting: what a draft pass sees, leaves behind and depends on; and that it changes nothing of what is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from deepinfer.backends import reference
from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.model.caches import Caches
from deepinfer.model.draft import DraftPool, DraftRequest, Drafts, DraftSampling
from deepinfer.model.layer import Layer
from deepinfer.model.loading import load_model
from deepinfer.model.step import Step
from deepinfer.model.transformer import Model
from deepinfer.ops import layouts, sampling
from golden_adapter import entries
from released import GOLDEN_CHECKPOINT
from schedules import Driver, Track, cuts
from speaker import Speaker

CPU = torch.device("cpu")
BLOCK, WINDOW, LENGTH = 5, 16, 41


@pytest.fixture(scope="module")
def model() -> Model:
    reference.backend.load()
    return load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True)


def text(seed: int, length: int = LENGTH) -> list[int]:
    return np.random.default_rng(seed).integers(3, 480, length).tolist()


def draft(
    model: Model, caches: Caches, tracks: Sequence[Track | None], block: int = BLOCK, how: DraftSampling | None = None
) -> Drafts:
    """Draft behind what the tracks have computed, the first token being 17 + place; None does not draft."""
    last = [-1 if t is None else t.done - 1 for t in tracks]
    slots = [0 if t is None else t.slot for t in tracks]
    tokens = [17 + 3 * (0 if t is None else t.done % 7) for t in tracks]
    request = DraftRequest.build(tokens, last, slots, CPU)
    greedy = DraftSampling.greedy(len(tracks), CPU)
    return model.draft(request, how or greedy, caches, block, keep_logits=True)


def same(a: Drafts, i: int, b: Drafts, j: int) -> bool:
    """Whether sequence i of one pass and j of another got the same bits."""
    assert a.logits is not None and b.logits is not None
    pairs = ((a.tokens, b.tokens), (a.confidence, b.confidence), (a.logits, b.logits))
    return all(torch.equal(x[i], y[j]) for x, y in pairs)


@pytest.fixture(scope="module")
def alone(model: Model) -> Drafts:
    """Drafts behind one sequence computed at once, in a pass of its own."""
    driver = Driver(model)
    return draft(model, driver.caches, [driver.run(text(1))])


# ---- what the drafts depend on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(7,), (40, 1), (33, 1)], ids=str)
def test_chunking_changes_no_bit(model: Model, alone: Drafts, sizes: tuple[int, ...]) -> None:
    driver = Driver(model)
    assert same(draft(model, driver.caches, [driver.run(text(1), cuts(LENGTH, *sizes))]), 0, alone, 0)


def test_neighbours_order_and_padding_change_no_bit(model: Model, alone: Drafts) -> None:
    driver = Driver(model, slots=9, pages=24, poison=0xFF)
    tracks = [driver.add(text(seed, n)) for seed, n in ((2, 9), (1, LENGTH), (3, 41), (4, 3))]
    driver.step([(t, len(t.tokens)) for t in tracks], rows=130)
    for order in ([1], [0, 1], [1, 2, 3, 0], [3, 2, 0, 1]):
        some: list[Track | None] = [tracks[i] for i in order]
        place = order.index(1)
        assert same(draft(model, driver.caches, some), place, alone, 0), order
        assert same(draft(model, driver.caches, [None, *some, None]), place + 1, alone, 0), order
    many: list[Track | None] = [tracks[i % 4] for i in range(30)]
    found = draft(model, driver.caches, many)
    assert all(same(found, i, alone, 0) for i in range(1, 30, 4))


def test_a_longer_block_changes_what_the_first_rows_see(model: Model) -> None:
    driver = Driver(model)
    track = driver.run(text(1))
    short, long = (draft(model, driver.caches, [track], block).logits for block in (2, 3))
    assert short is not None and long is not None
    assert not torch.equal(short[0, 0], long[0, 0]), "rows of a block see one another, the later ones included"


def test_a_block_sees_the_whole_window_and_nothing_older(model: Model, alone: Drafts) -> None:
    """Every other slot of the draft rings may hold NaN; each of the window's keys counts."""
    driver = Driver(model)
    track = driver.run(text(1))
    rings = [driver.caches.rings[f"mtp.{i}"][track.slot] for i in range(2)]
    slots = rings[0].shape[0]
    seen = {p % slots for p in range(LENGTH - WINDOW, LENGTH)}
    for ring in rings:
        ring[[s for s in range(slots) if s not in seen]] = 0xFF
    assert same(draft(model, driver.caches, [track]), 0, alone, 0)
    for position in (LENGTH - WINDOW, LENGTH - 1):
        before = rings[0][position % slots].clone()
        rings[0][position % slots, :4] ^= 0x35
        assert not same(draft(model, driver.caches, [track]), 0, alone, 0), position
        rings[0][position % slots] = before


def test_window_keys_before_the_first_valid_position_are_not_seen(model: Model) -> None:
    driver = Driver(model)
    track = driver.run(text(1))
    request = DraftRequest.build([17], [LENGTH - 1], [track.slot], CPU, valid_start=[LENGTH - 6])
    greedy = DraftSampling.greedy(1, CPU)
    want = model.draft(request, greedy, driver.caches, BLOCK, keep_logits=True)
    ring = driver.caches.rings["mtp.1"][track.slot]
    ring[[p % ring.shape[0] for p in range(LENGTH - WINDOW, LENGTH - 6)]] = 0xFF
    assert same(model.draft(request, greedy, driver.caches, BLOCK, keep_logits=True), 0, want, 0)


def test_taps_are_taken_at_the_entry_of_their_layers(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: dict[int, torch.Tensor] = {}
    taps: list[torch.Tensor | None] = []

    def watch(number: int, layer: Layer) -> Callable[..., object]:
        def run(streams: torch.Tensor, pending: torch.Tensor, step: Step) -> object:
            entered[number] = streams.clone()
            return layer(streams, pending, step)

        return run

    assert model.drafter is not None
    monkeypatch.setattr(model, "layers", [watch(i, layer) for i, layer in enumerate(model.layers)])
    monkeypatch.setattr(model.drafter, "remember", lambda step: taps.append(step.taps))
    Driver(model).run(text(1, 6))
    assert taps[0] is not None
    for place, layer in enumerate(model.config.text.dspark_target_layer_ids):
        mean = entered[layer].float().mean(1).bfloat16()
        assert taps[0][:, place].equal(mean), layer


def test_the_taps_reach_the_drafts(model: Model, alone: Drafts) -> None:
    """Another token four positions back changes the drafts, through the main keys alone."""
    driver = Driver(model)
    other = text(1)
    other[-4] = (other[-4] + 9) % 480
    assert not same(draft(model, driver.caches, [driver.run(other)]), 0, alone, 0)


def test_drafting_starts_at_the_first_token(model: Model) -> None:
    driver = Driver(model)
    found = draft(model, driver.caches, [driver.run(text(5, 1))])
    assert found.logits is not None and found.logits.isfinite().all()


# ---- what a pass leaves behind --------------------------------------------------------------------------------------


def test_a_pass_changes_no_cache_byte(model: Model) -> None:
    driver = Driver(model)
    track = driver.run(text(1))
    before = (driver.caches.state.clone(), driver.caches.pages.clone())
    draft(model, driver.caches, [track])
    assert driver.caches.state.equal(before[0]) and driver.caches.pages.equal(before[1])


def sampled(sequences: int, *, shared: bool = False, temperature: float = 1.0) -> DraftSampling:
    inverse = torch.full((sequences,), sampling.inverse_temperature(temperature))
    top_k = torch.full((sequences,), 20, dtype=torch.int32)
    return DraftSampling(inverse, torch.arange(sequences) + 11, top_k=top_k, shared=shared)


@pytest.mark.parametrize("shared", [False, True])
def test_drafts_are_drawn_at_the_index_they_will_have(model: Model, shared: bool) -> None:
    driver = Driver(model)
    tracks = [driver.run(text(1)), driver.run(text(6, 20))]
    how = sampled(2, shared=shared)
    found = draft(model, driver.caches, tracks, how=how)
    assert found.logits is not None
    purpose = sampling.Purpose.TARGET if shared else sampling.Purpose.DRAFT
    for place in range(BLOCK):
        z = found.logits[:, place].contiguous()
        kept = sampling.sample_filter(z, how.inv_temperature, how.top_k)
        index = torch.tensor([LENGTH + 1 + place, 20 + 1 + place])
        want = sampling.sample_draw(z, how.inv_temperature, kept, how.seeds, index, purpose)
        assert found.tokens[:, place].equal(want), place


def test_the_pool_holds_tokens_confidences_and_distributions(model: Model) -> None:
    driver = Driver(model)
    tracks = [driver.run(text(1)), driver.run(text(6, 20)), driver.run(text(7, 9))]
    vocab = model.config.text.vocab_size
    pool = DraftPool.new(6, BLOCK, vocab, CPU, distributions=True)
    assert pool.log2q is not None
    pool.log2q.fill_(torch.nan)
    request = DraftRequest.build([3, 4, 5], [LENGTH - 1, 19, 8], [t.slot for t in tracks], CPU, pool_slot=[4, -1, 2])
    stop = torch.tensor([False, False, True])
    request = DraftRequest(*(getattr(request, n) for n in request.__dataclass_fields__ if n != "stop"), stop=stop)
    found = model.draft(request, sampled(3), driver.caches, BLOCK, pool, keep_logits=True)
    assert pool.tokens[[4, 2]].equal(found.tokens[[0, 2]])
    assert pool.confidence[4].equal(found.confidence[0]) and not pool.confidence[2].any()
    untouched = [0, 1, 3, 5]
    assert pool.tokens[untouched].eq(-1).all() and pool.log2q[untouched].isnan().all()
    mass = pool.log2q[[4, 2]].double().exp2()
    assert torch.allclose(mass.sum(-1), torch.ones(2, BLOCK, dtype=torch.float64), atol=1e-5)
    assert (mass > 0).sum(-1).eq(20).all(), "top-k 20"
    assert (mass.gather(-1, found.tokens[[0, 2]].long().unsqueeze(-1)) > 0).all()


def test_confidences_take_a_temperature_per_place(model: Model, alone: Drafts) -> None:
    driver = Driver(model)
    track = driver.run(text(1))
    inverse = torch.tensor([1.0, 0.5, 2.0, 1.0, 1.0])
    how = DraftSampling(torch.full((1,), torch.inf), torch.zeros(1, dtype=torch.int64), inv_confidence=inverse)
    got, plain = draft(model, driver.caches, [track], how=how).confidence[0].double(), alone.confidence[0].double()
    logit = torch.log(plain / (1 - plain))
    assert torch.allclose(got, torch.sigmoid(logit * inverse), atol=1e-5)


# ---- speculation changes nothing of what is said ------------------------------------------------------------------

PROMPT, SAID = 21, 15


@pytest.fixture(scope="module")
def plain(model: Model) -> tuple[list[int], Speaker]:
    """Greedy text without drafts."""
    speaker = Speaker(model, text(9, PROMPT), DraftSampling.greedy(1, CPU), 0)
    return speaker.say(SAID), speaker


@pytest.mark.parametrize("n", [1, 3, 5])
def test_greedy_text_is_that_of_plain_decoding(model: Model, plain: tuple[list[int], Speaker], n: int) -> None:
    speaker = Speaker(model, text(9, PROMPT), DraftSampling.greedy(1, CPU), n)
    assert speaker.say(SAID) == plain[0]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "n"), [pytest.param(9, 2, marks=pytest.mark.whole), (31, 4)])
def test_long_greedy_text_is_that_of_plain_decoding(model: Model, seed: int, n: int) -> None:
    greedy = DraftSampling.greedy(1, CPU)
    said = Speaker(model, text(seed, PROMPT), greedy, 0).say(60)
    assert Speaker(model, text(seed, PROMPT), greedy, n).say(60) == said


@pytest.mark.parametrize("right", range(6))
def test_injected_drafts_of_every_accepted_length(model: Model, plain: tuple[list[int], Speaker], right: int) -> None:
    """Drafts of which the first `right` are what will be said: all of those are accepted, and no other."""
    said, whole = plain

    def inject(tokens: list[int]) -> list[int]:
        done = len(tokens) - PROMPT
        truth = said[done : done + BLOCK]
        return [t if i < right else (t + 1) % 480 for i, t in enumerate(truth)]

    speaker = Speaker(model, text(9, PROMPT), DraftSampling.greedy(1, CPU), BLOCK, inject)
    assert speaker.say(SAID) == said
    assert set(speaker.accepted[:-1]) == {right}
    done = PROMPT + SAID - 1
    for prefix, ring in speaker.caches.rings.items():
        kept = [p % ring.shape[1] for p in range(done - WINDOW, done)]
        assert ring[1, kept].equal(whole.caches.rings[prefix][1, kept]), prefix
    assert page_entries(speaker, done) == page_entries(whole, done)


def page_entries(speaker: Speaker, length: int) -> list[bytes]:
    """Bytes of the complete compressed entries and index keys of the first `length` positions."""
    caches, config = speaker.caches, speaker.model.config
    found = []
    for role in config.topology.layers:
        if role.owns_kv:
            layout = layouts.LAYOUTS[caches.layout.record]
            found += records(layout, caches.main[role.layer], config.text.head_dim, role.ratio, length // role.ratio)
        if role.owns_index_k:
            width = config.text.index_head_dim
            found += records(layouts.FP4_32_INDEX, caches.index[role.layer], width, role.ratio, length // role.ratio)
    return found


def records(layout: layouts.RecordLayout, pages: torch.Tensor, channels: int, ratio: int, count: int) -> list[bytes]:
    return [bytes(row) for row in entries(layout, pages, channels, ratio, count)]


@pytest.mark.parametrize("n", [5])
def test_sampled_text_is_that_of_plain_decoding_with_shared_noise(model: Model, n: int) -> None:
    how = sampled(1, shared=True, temperature=0.7)
    said = Speaker(model, text(9, PROMPT), how, 0).say(SAID)
    speaker = Speaker(model, text(9, PROMPT), how, n)
    assert speaker.say(SAID) == said
    assert any(speaker.accepted), "the noise is shared with the drafter"


def test_sampled_text_repeats(model: Model) -> None:
    how = sampled(1, temperature=0.7)
    first, second = (Speaker(model, text(9, PROMPT), how, 5) for _ in range(2))
    assert first.say(SAID) == second.say(SAID) and first.accepted == second.accepted


# ---- refusals -----------------------------------------------------------------------------------------------------


def test_refusals(model: Model) -> None:
    driver = Driver(model)
    track = driver.run(text(1, 4))
    for block in (0, 6):
        with pytest.raises(InvalidArgumentError, match=r"block.* 1 to 5, the drafts that the model was loaded for"):
            draft(model, driver.caches, [track], block)
    without = load_model(GOLDEN_CHECKPOINT, identity_vocabulary=True, max_draft=0)
    driver = Driver(without)
    with pytest.raises(NotSupportedError, match="max_draft 0"):
        draft(without, driver.caches, [driver.run(text(1, 4))], 1)
