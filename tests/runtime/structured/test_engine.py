"""Structured output through the engine: drafts, steps that overlap, preemption, prefixes, failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from deepinfer.hal import env
from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.outputs import RequestFailedError
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.structured import service, vocabulary
from engines import build_engine
from grammars import Compiler

DRAFTS = "DEEPINFER_USE_NEXTN_DECODE"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "n": {"type": "integer", "minimum": 10, "maximum": 99}},
    "required": ["name", "n"],
}
SO_ARGS = {"schema_type": "json", "schema": json.dumps(SCHEMA), "max_whitespace": 0}


@pytest.fixture(scope="module")
def models(compiler: Compiler) -> Iterator[Any]:
    """Loads models whose engines compile in this process."""
    made: list[LLM] = []

    def load(drafts: int = 0, **arguments: Any) -> LLM:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service.GrammarService, "from_environment", Compiler)
            patch.setenv(DRAFTS, str(drafts))
            env.rearm(DRAFTS)
            made.append(LLM("tiny", **({"max_num_seqs": 4, "max_model_len": 256} | arguments)))
        env.rearm(DRAFTS)
        return made[-1]

    yield load
    for llm in made:
        llm.close()


@pytest.fixture(scope="module")
def llm(models: Any) -> LLM:
    return models(drafts=3)  # type: ignore[no-any-return]


def asked(seed: int | None = None, **more: Any) -> SamplingParams:
    how = {"temperature": 0} if seed is None else {"seq_seed": seed}
    return SamplingParams(**({"max_tokens": 40, "so_args": SO_ARGS} | how | more))


def holds(text: str) -> bool:
    value = json.loads(text)
    return set(value) == {"name", "n"} and len(value["name"]) <= 4 and 10 <= value["n"] <= 99


def test_what_is_generated_is_what_the_schema_says(llm: LLM) -> None:
    """With drafts and steps that overlap; a neighbour without a schema says what it says alone."""
    free = SamplingParams(max_tokens=6, seq_seed=5)
    texts = llm.generate(["a", "b", "c"], [asked(), asked(3), free])
    assert holds(texts[0]) and holds(texts[1])
    stats = llm.engine.stats
    assert stats.accepted > 0, "forced tokens are drafts that hold"
    assert stats.steps < stats.output_tokens / 2
    assert texts[2] == llm.generate(["c"], free)[0]


@pytest.mark.whole
def test_steps_that_overlap_and_steps_that_do_not_say_the_same(models: Any) -> None:
    params = [asked(), asked(3), asked(4), SamplingParams(max_tokens=12, seq_seed=5)]
    texts = [
        models(drafts=3, async_scheduling=overlap).generate(["a", "b", "c", "d"], params) for overlap in (True, False)
    ]
    assert texts[0] == texts[1] and all(map(holds, texts[0][:3]))
    assert models(drafts=0).generate(["a"], asked())[0] == texts[0][0], "drafts change no token at temperature 0"


@pytest.mark.whole
def test_preemption_and_prefix_hits_change_nothing(models: Any) -> None:
    long = [5 + i % 50 for i in range(120)]
    params = [asked(3), asked(4), asked(5)]
    roomy = models(drafts=2, decode_sequence=False)
    want = [[one.token_id for one in outputs] for outputs in roomy.generate(None, params, [long] * 3)]
    tight = models(drafts=2, num_pages=4, max_model_len=256, enable_prefix_caching=True, decode_sequence=False)
    for _ in range(2):
        found = [[one.token_id for one in outputs] for outputs in tight.generate(None, params, [long] * 3)]
        assert found == want
    assert tight.engine.stats.preemptions and tight.engine.stats.cached_tokens


def test_a_grammar_that_fails_ends_its_request_alone(llm: LLM) -> None:
    broken = SamplingParams(max_tokens=3, so_args={"schema_type": "regex", "schema": "((a"})
    free = SamplingParams(max_tokens=3, seq_seed=5)
    with pytest.raises(RequestFailedError, match="prompt 0: GrammarError.*not closed") as caught:
        llm.generate(["a", "b"], [broken, free])
    assert caught.value.results == ["", llm.generate(["b"], free)[0]]
    forced = SamplingParams(max_tokens=3, golden_token_ids=[7, 8], so_args=SO_ARGS)
    with pytest.raises(RequestFailedError, match="prompt 0: output token 0, 7, does not fit"):
        llm.generate(["a", "b"], [forced, free])
    assert not llm.engine.has_unfinished_requests() and llm.engine.pages_in_use == 0
    assert holds(llm.generate(["a"], asked())[0])


def test_forks_are_held_to_the_same_from_their_own_beginning(llm: LLM) -> None:
    engine = llm.engine
    engine.add_request(None, 0, asked(3, max_tokens=30), [5, 6])
    while not any(output.token_id >= 0 for output in engine.step()):
        pass
    with pytest.raises(InvalidArgumentError, match="so_args"):
        engine.fork_request(0, 1, asked(so_args={"schema_type": "regex", "schema": "a"}))
    engine.fork_request(0, 2, asked(4, max_tokens=30))
    text = ""
    while engine.has_unfinished_requests():
        text += "".join(output.text for output in engine.step() if output.request_id == 2)
    assert holds(text)


def test_who_cannot_compile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="so_args.*no tokenizer"):
        build_engine().add_request(None, 0, asked(), [5])
    monkeypatch.setattr(vocabulary.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotSupportedError, match=r"deepinfer-hal\[structured\]"):
        vocabulary.check_installed()


def test_who_is_left_without_a_token_hears_why(llm: LLM) -> None:
    """Not that the model is to blame, whose logits are numbers."""
    longer = asked(so_args={"schema_type": "regex", "schema": "a"}, first_n_token_no_eos=5)
    with pytest.raises(
        RequestFailedError, match=r"so_args\['schema'\] allows nothing but the end.*first_n_token_no_eos = 5"
    ):
        llm.generate(["a"], longer)
    assert holds(llm.generate(["a"], asked(first_n_token_no_eos=5))[0])
