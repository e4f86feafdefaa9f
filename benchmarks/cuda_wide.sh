#!/bin/sh
# What a GPU has to say before the kernels for 65 to 256 rows (backends/cuda/linear_wide_sm90.py) are chosen, and what the
# model's fused ops bring: bits first, then times. Some eight minutes on one H200.
#
#     sh benchmarks/cuda_wide.sh FOLDER
#
# Of `slice-pinned` only the times count: a pinned op goes past the counter, and is missing in floors and shares.
# FOLDER gets a file for each step, and `status` the exit status of each. The kernels are worth choosing where tests pass,
# and `linear-pinned-*` are faster than `linear-*`; then their priority in linear_wide_sm90.py becomes 3, the
# run is recorded in tests/backends/cuda/runs, and docs/performance.md takes the tables.
set -u
out=${1:?a folder for the results}
mkdir -p "$out"
python=${PYTHON:-python}
pins='linear_fp8*=cuda:sm90_wide,grouped_linear=cuda:sm90_wide'

step() {
    name=$1
    shift
    timeout 280 "$@" >"$out/$name" 2>&1
    echo "$name $?" | tee -a "$out/status"
}
pinned() {
    name=$1
    shift
    step "$name" env DEEPINFER_PIN="$pins" "$@"
}

step rates "$python" benchmarks/cuda_rates.py
step tests "$python" -m pytest -q -p no:cacheprovider tests/backends/cuda/test_linear_wide_sm90.py
grep -q '^tests 0$' "$out/status" || exit 1
for rows in 32 96 128 192 256; do
    step "linear-$rows" "$python" benchmarks/cuda_linear.py --only " $rows rows"
    pinned "linear-pinned-$rows" "$python" benchmarks/cuda_linear.py --only " $rows rows"
done
cases='decode, 128 x 32,768; eager, 128 x 32,768; ops, 128 x 32,768; decode, 1 x 32,768'
step slice "$python" benchmarks/slice.py --only "$cases"
pinned slice-pinned "$python" benchmarks/slice.py --only "$cases"
step model "$python" -m deepinfer conformance run --backend cuda --suite full --only model
