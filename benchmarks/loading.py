"""Rate and peak memory of loading a checkpoint, against a bare read of the same files.

    python benchmarks/loading.py [--model DIR] [--repeats N] [--loaders bare,owned,...] [--json] [--check]

Loaders, each in a process of its own:

* bare: `safetensors.torch.load_file` of every shard, then every byte touched. The files stay mapped: with the files
  in the page cache no data moves at all, so this is the speed of looking at a file, not of having its content;
* owned: the same, and every tensor cloned into memory of its own;
* reader: `Checkpoint.read_many` of every tensor into preallocated memory, values checked;
* model: the whole model assembled, experts stacked.

Each is measured with the files out of the page cache (cold: what the first start of a server sees) and in it (warm).
Rates are the best of the repeats, taken in turns, in GB/s and as a share of bare and of owned; `memory` is the peak
resident memory over the bytes of the files, the interpreter and torch included; `system` is the kernel's share of the
time in seconds, mostly page faults.

Without --model a checkpoint of about 1 GB of generated values is written to a temporary directory. --check ends with
status 1 when reader or model are below 70 % of bare (cold) or of owned (warm, where looking at mapped pages reads
nothing), or their peak memory is above 1.3 x the files.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LOADERS = ("bare", "owned", "reader", "model")
MIN_RATE, MAX_MEMORY = 0.70, 1.30


def config_values() -> dict[str, Any]:
    """A small model whose tensors have sizes like real ones (experts of a megabyte, tables of many)."""
    return {
        "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "image_token_id": 500,
        "quantization_config": {
            "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0", "expert_dtype": "fp4",
        },
        "text_config": {
            "model_type": "deepseek_v41_text", "vocab_size": 16384, "hidden_size": 2048, "num_hidden_layers": 10,
            "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
            "q_lora_rank": 512, "o_lora_rank": 256, "o_groups": 2, "hidden_act": "silu", "swiglu_limit": 10.0,
            "rms_norm_eps": 1e-20, "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False,
            "max_position_embeddings": 2048, "rope_theta": 10000, "compress_rope_theta": 160000, "rope_scaling": None,
            "n_routed_experts": 20, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1024,
            "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True,
            "routed_scaling_factor": 1.5, "sliding_window": 128,
            "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0], "kv_source_layer_ids": [2, 4, 6],
            "index_source_layer_ids": [2, 4, 6, 8], "index_n_heads": 8, "index_head_dim": 128, "index_topk": 64,
            "candidate_source_layer_id": 6, "candidate_topk_blocks": 64, "candidate_block_size": 8, "hc_mult": 4,
            "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "engram_layer_ids": [1, 4], "engram_max_ngram_size": 4,
            "engram_vocab_size": 50000, "engram_n_heads": 4, "engram_head_dim": 128, "engram_pad_token_id": 2,
            "engram_compressed_vocab_size": 16384, "num_nextn_predict_layers": 1, "dspark_block_size": 5,
            "dspark_noise_token_id": 511, "dspark_target_layer_ids": [7, 8, 9], "dspark_markov_rank": 128,
            "dspark_n_routed_experts": 8, "dspark_num_experts_per_tok": 2,
        },
        "vision_config": {
            "model_type": "deepseek_v41_vision", "num_hidden_layers": 2, "hidden_size": 256,
            "num_attention_heads": 4, "intermediate_size": 512, "patch_size": 14, "rope_theta": 10000,
            "downsample_ratio": 3, "max_image_tokens": 64, "min_pixels": 7056,
        },
    }  # fmt: skip


# ---- measured in a child process -------------------------------------------------------------------------------


def load(loader: str, directory: Path) -> float:
    """Seconds to load; imports are outside."""
    import torch

    torch.set_num_threads(1)
    if loader in ("bare", "owned"):
        return _load_bare(directory, clone=loader == "owned")
    return _load_reader(directory) if loader == "reader" else _load_model(directory)


def _load_bare(directory: Path, *, clone: bool) -> float:
    import torch
    from safetensors.torch import load_file

    start = time.perf_counter()
    kept = []
    for shard in sorted(directory.glob("*.safetensors")):
        for tensor in load_file(shard).values():
            data = tensor.reshape(-1).view(torch.uint8)
            kept.append(data.clone() if clone else data)
            if not clone and data.numel():
                data.numpy().max()
    return time.perf_counter() - start


def _load_reader(directory: Path) -> float:
    import torch

    from deepinfer.model.checkpoint import Checkpoint, ReadRequest, torch_dtype

    start = time.perf_counter()
    with Checkpoint.open(directory) as checkpoint:
        checkpoint.check()
        specs = checkpoint.inventory.values()
        requests = [ReadRequest(spec.name, torch.empty(spec.shape, dtype=torch_dtype(spec.dtype))) for spec in specs]
        checkpoint.read_many(requests)
    return time.perf_counter() - start


def _load_model(directory: Path) -> float:
    from deepinfer.model.loading import load_model

    start = time.perf_counter()
    model = load_model(directory, identity_vocabulary=True)
    seconds = time.perf_counter() - start
    assert model is not None  # alive until here
    return seconds


def child(loader: str, directory: Path) -> None:
    seconds = load(loader, directory)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"seconds": seconds, "peak": usage.ru_maxrss * 1024, "system": usage.ru_stime}))


# ---- the parent, which imports neither torch nor numpy: a child's peak memory starts at its parent's --------------


def measure(loader: str, directory: Path, *, cold: bool) -> dict[str, Any]:
    for shard in directory.glob("*.safetensors"):
        _page_cache(shard, drop=cold)
    command = [sys.executable, __file__, "--child", loader, "--model", str(directory)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    values: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return values


def _page_cache(path: Path, *, drop: bool) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if drop:
            os.fsync(descriptor)  # dirty pages stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while os.read(descriptor, 1 << 20):
                pass
    finally:
        os.close(descriptor)


def run(directory: Path, repeats: int, loaders: list[str]) -> list[dict[str, Any]]:
    size = sum(shard.stat().st_size for shard in directory.glob("*.safetensors"))
    rows = []
    for cold in (True, False):
        taken: dict[str, list[dict[str, Any]]] = {loader: [] for loader in loaders}
        for _ in range(repeats):
            for loader in loaders:
                taken[loader].append(measure(loader, directory, cold=cold))
        rates = {loader: size / min(t["seconds"] for t in taken[loader]) for loader in loaders}
        for loader in loaders:
            rows.append(
                {
                    "case": f"{loader} {'cold' if cold else 'warm'}",
                    "file_bytes": size,
                    "gb_per_s": round(rates[loader] / 1e9, 3),
                    "of_bare": round(rates[loader] / rates["bare"], 3) if "bare" in rates else None,
                    "of_owned": round(rates[loader] / rates["owned"], 3) if "owned" in rates else None,
                    "system": round(min(t["system"] for t in taken[loader]), 2),
                    "memory": round(max(t["peak"] for t in taken[loader]) / size, 3),
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: about 1 GB of generated values")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loaders", type=lambda text: text.split(","), default=list(LOADERS), help="which to measure")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--check", action="store_true", help="status 1 when a limit is missed")
    parser.add_argument("--child", choices=LOADERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.model)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        directory = args.model or write(Path(scratch))
        rows = run(directory, args.repeats, args.loaders)
    for row in rows:
        print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    missed = [
        row["case"]
        for row in rows
        if row["case"].startswith(("reader", "model"))
        and (
            (row["of_bare" if row["case"].endswith("cold") else "of_owned"] or 0) < MIN_RATE
            or row["memory"] > MAX_MEMORY
        )
    ]
    if args.check and missed:
        print(f"limits missed: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


def write(directory: Path) -> Path:
    """Writes the generated checkpoint, in a child so that this process stays small."""
    code = (
        "import json, sys; from pathlib import Path; from deepinfer.model.dummy import write_dummy;"
        "write_dummy(Path(sys.argv[1]), json.load(sys.stdin), shards=3)"
    )
    command = [sys.executable, "-c", code, str(directory)]
    subprocess.run(command, check=True, input=json.dumps(config_values()), text=True)
    return directory


if __name__ == "__main__":
    sys.exit(main())
