"""DeepSeek-V4.1: configuration, weights, tokenizer, and the model that calls the ops.

Importing this package loads nothing. Reading checkpoints, without torch until a tensor is asked for:

* `config.load_config(path)` -> `ModelConfig` (`.text`, `.vision`, `.quantization`, top-level ids, `.topology`);
* `names.inventory(config)` -> every tensor: name, dtype, shape, kind;
* `checkpoint.Checkpoint.open(path)`: `.check(plan)`, `.entry`, `.read_into`, `.read`, `.read_many`, `.map`;
  `dummy.DummyCheckpoint` stands in without files;
* `shard_plan.ShardPlan(rank, world_size)`: the experts and Engram rows of one rank;
* `hub.resolve_model(model)`: preset name, path or hub id -> directory; `inspect.inspect(path)` describes one.
"""
