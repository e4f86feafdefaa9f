"""What of the upstream interface acts, and the test that shows it, or what will bring it.

`docs/parameters.md` is `render()`; write it anew with `python -m deepinfer.runtime.support > docs/parameters.md`.
Nothing is accepted and ignored: a name has a test of its effect, or a typed refusal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ..hal.env_table import VARIABLES
from .args import REFUSED, EngineArgs
from .params import SamplingParams

_ADMISSION = "tests/runtime/test_admission.py::"
_COMMIT = "tests/runtime/test_commit.py::"
_ENGINE = "tests/runtime/test_engine.py::"
_SAMPLER = "tests/runtime/test_sampler.py::"
_LLM = "tests/runtime/test_llm.py::"
_ARGS = "tests/runtime/test_args.py::"
_ASYNC = "tests/runtime/test_async_llm.py::"
_IMAGES = "tests/runtime/test_images.py::"
_LOADER = "tests/runtime/test_loader.py::"
_DRAFTING = "tests/runtime/test_drafting.py::"
_GRAPHS = "tests/runtime/test_graphs.py::"
_PREFIX = "tests/runtime/test_prefix.py::"
_TRUNCATION = "tests/runtime/test_truncation.py::"
_STRUCTURED = "tests/runtime/structured/"
_REFUSED_ARGUMENT = _ARGS + "test_unsupported_values_say_what_brings_them"
_REFUSED_VARIABLE = _LOADER + "test_planned_variables_are_refused_by_name"

SAMPLING_TESTS: Mapping[str, str] = {
    "temperature": _SAMPLER + "test_temperature_zero_is_the_lowest_id_among_the_largest",
    "top_p": _SAMPLER + "test_the_most_likely_token_survives_every_filter",
    "top_k": _SAMPLER + "test_filters_bound_what_is_drawn",
    "min_p": _SAMPLER + "test_the_most_likely_token_survives_every_filter",
    "max_tokens": _COMMIT + "test_the_length_limit_in_force_is_announced",
    "n": _ADMISSION + "test_sample_j_is_the_request_with_seed_plus_j",
    "seq_seed": _SAMPLER + "test_seed_and_position_decide_the_draw",
    "repetition_penalty": _SAMPLER + "test_penalties_count_prompt_and_output_as_they_should",
    "frequency_penalty": _SAMPLER + "test_penalties_count_prompt_and_output_as_they_should",
    "presence_penalty": _SAMPLER + "test_penalties_count_prompt_and_output_as_they_should",
    "logit_bias": _SAMPLER + "test_logit_bias_and_the_ban_of_the_end_token",
    "stop": _COMMIT + "test_stop_strings_over_token_borders",
    "stop_token_ids": _COMMIT + "test_stop_token_ids",
    "ignore_eos": _COMMIT + "test_eos_ends_a_request_unless_ignored",
    "eos_id": _COMMIT + "test_eos_ends_a_request_unless_ignored",
    "first_n_token_no_eos": _SAMPLER + "test_logit_bias_and_the_ban_of_the_end_token",
    "logprobs": _SAMPLER + "test_raw_and_processed_logprobs",
    "top_logprobs": _SAMPLER + "test_top_lists_are_as_long_as_each_row_asks",
    "prompt_logprobs": _COMMIT + "test_prompt_logprobs_come_once_whatever_the_chunks",
    "golden_token_ids": _SAMPLER + "test_golden_tokens_replace_the_draw_and_carry_their_own_logprobs",
    "priority": "tests/runtime/test_waiting.py::test_higher_priorities_begin_first_and_give_way_last",
    "tenant": "tests/runtime/test_waiting.py::test_tenants_get_even_shares_however_many_requests_they_bring",
    "cache_salt": _PREFIX + "test_salts_do_not_share",
    "so_args": _STRUCTURED + "test_engine.py::test_what_is_generated_is_what_the_schema_says",
}
SAMPLING_REFUSED: Mapping[str, tuple[str, str]] = {}
ARGUMENT_TESTS: Mapping[str, str] = {
    "model": _LOADER + "test_the_model_directory_and_the_tokenizer_of_another",
    "tokenizer": _LOADER + "test_the_model_directory_and_the_tokenizer_of_another",
    "revision": _LOADER + "test_revisions_reach_the_hub",
    "tokenizer_revision": _LOADER + "test_revisions_reach_the_hub",
    "load_format": _LOADER + "test_dummy_weights_need_no_shards",
    "seed": _ADMISSION + "test_an_engine_seed_makes_default_seeds_repeat",
    "max_model_len": _ARGS + "test_max_model_len",
    "gpu_memory_utilization": _LOADER + "test_the_pool_fills_the_memory_it_may_use",
    "max_num_batched_tokens": _ARGS + "test_rows_of_a_step",
    "max_num_seqs": "tests/runtime/test_planner.py::test_admission_is_bounded_by_pages_slots_and_requests",
    "chunked_prefill": "tests/runtime/test_planner.py::test_without_chunks_a_prompt_waits_for_a_step_that_holds_it",
    "stop_preempted_request": _ENGINE + "test_a_preempted_request_may_end_instead",
    "tokens_per_block": _ARGS + "test_bad_values_name_the_argument",
    "disable_log_stats": _LOADER + "test_log_lines_follow_the_argument_and_the_interval",
    "num_pages": _ARGS + "test_the_pool_must_hold_one_longest_request",
    "device": _LOADER + "test_the_device_and_the_backend_are_checked",
    "backend": _LOADER + "test_the_device_and_the_backend_are_checked",
    "engram_storage": _LOADER + "test_where_the_engram_tables_live",
    "yoco_prefill_truncation_mode": _TRUNCATION + "test_arguments_beat_the_environment",
    "yoco_prefill_keep_tokens": _TRUNCATION + "test_arguments_beat_the_environment",
    "step_seconds": "tests/runtime/test_cost.py::test_the_engine_cuts_prompts_to_the_time_of_a_step",
    "async_scheduling": _LOADER + "test_steps_overlap_unless_told_otherwise",
    "trace": "tests/runtime/test_trace.py::test_a_recorded_run_is_planned_the_same_again",
    "metrics_port": "tests/runtime/test_watch.py::test_an_engine_shows_what_its_arguments_ask_for",
    "timeline": "tests/runtime/test_watch.py::test_an_engine_shows_what_its_arguments_ask_for",
    "prefix_replay_tokens": "tests/runtime/test_replay.py::test_windows_that_are_gone_are_begun_anew",
    "image_workers": _LOADER + "test_images_are_decoded_as_the_arguments_say",
    "host_memory_gib": "tests/runtime/test_tiny_moves.py::test_host_memory_is_taken_and_used",
    "enable_prefix_caching": "tests/runtime/test_tiny_prefix.py::test_later_turns_are_spared_and_say_the_same",
    "cpu_binding": _LOADER + "test_the_process_is_bound_while_the_engine_is_there",
    "drafter_invariant": _DRAFTING + "test_invariant_text_is_that_of_plain_decoding",
}
# Ours; the others are upstream's.
OWN_SAMPLING = {
    "min_p", "n", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias", "stop", "stop_token_ids",
    "cache_salt", "priority", "tenant",
}  # fmt: skip
OWN_ARGUMENTS = {
    "num_pages", "device", "backend", "engram_storage", "drafter_invariant", "yoco_prefill_truncation_mode",
    "yoco_prefill_keep_tokens", "enable_prefix_caching", "prefix_replay_tokens", "host_memory_gib",
    "image_workers",
    "step_seconds",
    "trace", "async_scheduling", "metrics_port", "timeline", "cpu_binding",
}  # fmt: skip

OWN_CALLS = {
    "AsyncLLM(step_timeout)", "AsyncLLM(max_queued)", "AsyncLLM.generate", "AsyncLLM.abort",
    "AsyncLLM.shutdown(drain, timeout)",
    "LLMEngine.fork_request", "LLM.stream", "LLMEngine.reset_prefix_cache", "LLMEngine.use_prefix_cache",
    "LLMEngine.waiting_for",
}  # fmt: skip

CALL_TESTS: Mapping[str, str] = {
    "AsyncLLM(step_timeout)": _ASYNC + "test_a_step_that_never_returns_is_noticed",
    "AsyncLLM(max_queued)": _ASYNC + "test_too_many_requests_are_refused_or_wait_in_order",
    "AsyncLLM.generate": "tests/runtime/test_watch.py::test_streams_of_a_model_say_what_generate_says",
    "AsyncLLM.abort": _ASYNC + "test_leaving_aborts_and_frees_everything",
    "AsyncLLM.shutdown(drain, timeout)": _ASYNC + "test_shutdown_drains_or_aborts",
    "LLM(decode_sequence)": _LLM + "test_without_decoding_a_list_of_outputs_per_prompt",
    "LLM.generate(prompts)": _LLM + "test_one_text_per_prompt_in_order",
    "LLM.generate(sampling_params)": _LLM + "test_several_samples_make_a_list_of_entries",
    "LLM.generate(prompt_token_ids)": _LLM + "test_one_text_per_prompt_in_order",
    "LLM.generate(multi_modal_data)": _IMAGES + "test_a_picture_changes_what_is_said_and_nothing_else_does",
    "LLM.generate(use_tqdm)": _LLM + "test_progress_bar_counts_samples",
    "LLM.stream": _LLM + "test_a_stream_gives_outputs_one_by_one",
    "LLM.close": _ENGINE + "test_close_is_idempotent_and_ends_everything",
    "LLMEngine.add_request(user_id, request_id)": _ENGINE + "test_one_output_per_token_and_the_fields_of_each",
    "LLMEngine.add_request(prompt_token_ids)": _ADMISSION + "test_bad_prompts_are_refused_before_they_are_queued",
    "LLMEngine.add_request(multi_modal_data)": _IMAGES + "test_chunks_samples_and_preemption_change_no_token",
    "LLMEngine.add_request(arrival_time)": _ADMISSION + "test_elapsed_counts_from_the_arrival_time",
    "LLMEngine.abort_request": _ENGINE + "test_abort_while_waiting_prefilling_and_decoding",
    "LLMEngine.fork_request": "tests/runtime/test_forks.py::test_a_fork_says_what_the_whole_text_as_a_prompt_says",
    "LLMEngine.step": _ENGINE + "test_one_output_per_token_and_the_fields_of_each",
    "LLMEngine.use_prefix_cache": "tests/runtime/test_prefix.py::test_the_cache_can_be_turned_off_and_on",
    "LLMEngine.waiting_for": "tests/runtime/test_waiting.py::test_who_waits_is_told_what_for",
    "LLMEngine.reset_prefix_cache": _PREFIX + "test_what_is_forgotten_is_computed_again",
    "LLMEngine.flush_inflight_reqs": "tests/runtime/test_flight.py::"
    "test_a_step_is_launched_before_the_one_before_is_looked_at",
}
CALL_REFUSED: Mapping[str, tuple[str, str]] = {
    "LLMEngine.add_request(extra, enqueue=False, chunk_checkpoints)": (
        "the disaggregated engines", _ADMISSION + "test_arguments_of_other_engines_are_refused",
    ),
}  # fmt: skip

VARIABLE_TESTS: Mapping[str, str] = {
    "XGRAMMAR_TIMEOUT": _STRUCTURED + "test_service.py::test_settings_come_from_the_environment",
    "XGRAMMAR_DISABLE_CACHE": _STRUCTURED + "test_service.py::test_settings_come_from_the_environment",
    "XGRAMMAR_CACHE_LIMIT_BYTES": _STRUCTURED + "test_service.py::test_settings_come_from_the_environment",
    "SO_BUILDER_CPUS": _STRUCTURED + "test_service.py::test_settings_come_from_the_environment",
    "ACCELERATOR": "tests/hal/test_catalog.py::test_an_argument_beats_the_environment",
    "STRICT_KERNELS": "tests/hal/test_registry.py::test_the_strict_variable_refuses_the_fallback",
    "PIN": "tests/hal/test_registry.py::test_the_pin_variable_chooses_the_kernel",
    "PROFILE_HTTP_ENABLE": "tests/runtime/test_watch.py::test_the_environment_turns_profiles_on",
    "PROFILE_HTTP_PORT_BASE": "tests/runtime/test_watch.py::test_the_environment_turns_profiles_on",
    "TORCH_PROFILER_DIR": "tests/runtime/test_watch.py::test_the_environment_turns_profiles_on",
    "BATCH_INVARIANT": "tests/hal/test_registry.py::test_the_invariance_variable_lets_fast_kernels_run",
    "CACHE_DIR": "tests/model/test_presets.py::test_preset_is_made_once",
    "JIT_CACHE_DIR": "tests/backends/cuda/test_cache.py::test_a_cache_that_cannot_be_written_is_warned_of",
    "HF_MODEL_DIR": _LOADER + "test_the_model_directory_of_the_environment",
    "GLOO_TIMEOUT": _LOADER + "test_the_deadline_of_collectives_comes_from_the_environment",
    "NUM_STATE_SLOTS_RATIO": _LOADER + "test_state_slots_follow_the_ratio",
    "PREFILL_MAX_SUM_SEQLEN_K": _LOADER + "test_the_cap_on_summed_lengths_comes_from_the_environment",
    "ZERO_OVERHEAD_SCHEDULING": _LOADER + "test_steps_overlap_unless_told_otherwise",
    "LOGGING_INTERVAL_STEP": _LOADER + "test_log_lines_follow_the_argument_and_the_interval",
    "USE_NEXTN_DECODE": _LOADER + "test_the_draft_length_comes_from_the_environment",
    "MAX_BACKTRACKING_TOKENS": _LOADER + "test_more_history_can_be_kept_than_drafts_need",
    "DFLASH_CONFIDENCE_HEAD_TEMPERATURE": _LOADER + "test_confidence_temperatures_are_one_or_one_per_draft",
    "ENGRAM_FORCE_GPU_STORAGE": _LOADER + "test_where_the_engram_tables_live",
    "YOCO_PREFILL_TRUNCATION_MODE": _TRUNCATION + "test_the_variables_choose_what_is_computed",
    "YOCO_PREFILL_KEEP_TOKENS": _TRUNCATION + "test_the_variables_choose_what_is_computed",
    "MULTI_MODAL_WORKER_TIMEOUT": _LOADER + "test_images_are_decoded_as_the_arguments_say",
    "MULTI_MODAL_BUFFER_SIZE": _LOADER + "test_images_are_decoded_as_the_arguments_say",
    "COMPUTE_SUM_SMALLER_PROBS": _LOADER + "test_the_variables_of_sampling_act_on_what_is_drawn",
    "SAMPLER_FORCE_TOPK": _LOADER + "test_the_variables_of_sampling_act_on_what_is_drawn",
    "ENFORCE_EAGER": _GRAPHS + "test_the_variables_turn_graphs_off",
    "DFLASH_ENFORCE_EAGER": _GRAPHS + "test_the_variables_turn_graphs_off",
    "CUDAGRAPH_BATCH_SIZE_INTERVAL": _GRAPHS + "test_sizes_that_are_captured",
    "DECODE_TOKEN_BLACKLIST": _LOADER + "test_the_variables_of_sampling_act_on_what_is_drawn",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One name of the interface.

    Attributes:
        name: as users write it.
        default: in words.
        brought_by: None when it acts; else what will bring it, and only its default is accepted.
        test: pytest id of the test of the effect, or of the refusal.
        upstream: whether upstream has it.
    """

    name: str
    default: str
    brought_by: str | None
    test: str
    upstream: bool = True


def sampling_rows() -> list[Row]:
    """Every field of SamplingParams."""
    rows = []
    for spec in dataclasses.fields(SamplingParams):
        brought_by, test = SAMPLING_REFUSED.get(spec.name) or (None, SAMPLING_TESTS[spec.name])
        rows.append(Row(spec.name, repr(spec.default), brought_by, test, spec.name not in OWN_SAMPLING))
    return rows


def argument_rows() -> list[Row]:
    """Every field of EngineArgs."""
    rows = []
    for spec in dataclasses.fields(EngineArgs):
        upstream = spec.name not in OWN_ARGUMENTS
        if spec.name in REFUSED:
            rows.append(Row(spec.name, repr(spec.default), REFUSED[spec.name][1], _REFUSED_ARGUMENT))
        elif spec.name == "engine_type":
            brought_by = "PROMPT and COMPLETION come with disaggregation"
            rows.append(Row(spec.name, repr(spec.default), brought_by, _REFUSED_ARGUMENT))
        else:
            rows.append(Row(spec.name, repr(spec.default), None, ARGUMENT_TESTS[spec.name], upstream))
    return rows


def call_rows() -> list[Row]:
    """Arguments of the calls that are no field of the above."""
    rows = [Row(name, "", None, test, name not in OWN_CALLS) for name, test in CALL_TESTS.items()]
    return rows + [Row(name, "", brought_by, test) for name, (brought_by, test) in CALL_REFUSED.items()]


def variable_rows() -> list[Row]:
    """Every environment variable."""
    rows = []
    for name, variable in VARIABLES.items():
        short = name.removeprefix("DEEPINFER_")
        test = VARIABLE_TESTS[short] if variable.brought_by is None else _REFUSED_VARIABLE
        rows.append(Row(name, variable.describe_default(), variable.brought_by, test, variable.upstream))
    return rows


def rows() -> list[Row]:
    """All of the above."""
    return [*sampling_rows(), *argument_rows(), *call_rows(), *variable_rows()]


_HEAD = """\
# Parameters

Generated by `python -m deepinfer.runtime.support`; edit `runtime/support.py` instead.

Every sampling parameter, engine argument, call argument and environment variable, and the test that shows its effect.
Where the third column names a feature, any value but the default (or one that describes what happens today) is refused
with a `NotSupportedError` that says so, and the test is the one of the refusal. A value out of range raises an
`InvalidArgumentError` with the parameter, what came and what is allowed. Nothing is accepted and ignored. Names marked
with * are not upstream's.

Where these differ from upstream:

- `temperature=0` is a true argmax, lowest id among equals; from 1e-5 on it divides the logits.
- `max_tokens=0` is refused. The limit in force is min(max_tokens, max_model_len - prompt length) and stands in every
  output as `max_output_tokens`.
- Seeds that nobody gave follow from the engine's `seed` and the order of requests, so a run repeats; `seed=None` draws
  them from the operating system, as `deepinfer generate` does. Outputs carry the seed that was used.
- `logprobs=k` returns raw log-probabilities beside the processed ones of `top_logprobs`; `prompt_logprobs` are raw.
- `first_n_token_no_eos` acts for any number of tokens.
- `eos_id` acts: None takes the tokenizer's.
- A batch with an invalid request raises before anything runs; prompts of max_model_len tokens or more are refused.
- Truncated prompts: the first position that is kept is counted from the end of the request's own prompt, so that a
  preemption changes no result; a chunk whose rows are all dropped keeps none as a placeholder; `prompt_logprobs` are
  refused instead of switched off; and so is truncation where `DEEPINFER_BATCH_INVARIANT=1` asks for batch invariance.
  While the mode is `off`, the number of kept tokens has no meaning.
- `offline_inference=True` is said by `LLM` and changes nothing else, so an engine of its own refuses it.
- `generation_config.json` of a checkpoint is not read, see [engine](engine.md#sampling-defaults).
- Drafts are at most 32 per step. A model without draft layers decodes plainly unless `DEEPINFER_USE_NEXTN_DECODE` is
  set. `drafter_invariant` makes sampled text that of plain decoding, see [engine](engine.md#drafts).
"""


def render() -> str:
    """The page, as Markdown."""
    parts = [_HEAD]
    for title, section in (
        ("SamplingParams", sampling_rows()),
        ("Engine arguments", argument_rows()),
        ("Calls", call_rows()),
        ("Environment variables", variable_rows()),
    ):
        parts.append(f"## {title}\n\n" + _table(section))
    return "\n".join(parts)


def _table(section: Iterable[Row]) -> str:
    lines = ["| name | default | comes with | test |", "|---|---|---|---|"]
    for row in section:
        mark = "" if row.upstream else " *"
        default = f"`{row.default}`" if row.default else ""
        file, _, test = row.test.partition("::")
        where = file.removeprefix("tests/")
        lines.append(f"| `{row.name}`{mark} | {default} | {row.brought_by or ''} | {where}: `{test}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page to stdout."""
    import sys

    sys.stdout.write(render())


if __name__ == "__main__":
    main()
