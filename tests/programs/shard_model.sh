#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# shard_model: its exit codes, its JSON, and that it sees a wrong byte.
#
#   bash shard_model.sh FOLDER_OF_PROGRAMS
#
# timeout: 180

source "$(dirname "$0")/../support/program.sh" "$1"

cat >odd.json <<'JSON'
{"model": "odd", "groups": [
  {"name": "once", "params": [{"name": "w", "shape": [3], "dtype": "f32"}]},
  {"name": "block.0", "repeat": 2, "params": [
    {"name": "block.0.prime", "shape": [7, 13], "dtype": "bf16"},
    {"name": "block.0.one", "shape": [1], "dtype": "f32"},
    {"name": "block.0.empty", "shape": [0, 4], "dtype": "bf16"},
    {"name": "block.0.e4m3", "shape": [3, 1], "dtype": "f8_e4m3", "gradient": "bf16"},
    {"name": "block.0.f16", "shape": [1, 5], "dtype": "f16"},
    {"name": "block.0.e5m2", "shape": [33, 7], "dtype": "f8_e5m2"},
    {"name": "block.0.f64", "shape": [5, 3], "dtype": "f64"},
    {"name": "block.0.mixed", "shape": [129, 3], "dtype": "bf16", "gradient": "f32"},
    {"name": "block.0.columns", "shape": [3, 60, 2], "dtype": "bf16", "shard_dim": 1}]},
  {"name": "ragged", "params": [{"name": "r", "shape": [10, 3], "dtype": "bf16", "rows": [3, 0, 7]}]}]}
JSON
odd=(--model-file odd.json --samples 2)

# ---- bad usage is 2 --------------------------------------------------------------------------------------------------

expect 2 "unknown flag '--rank'" --rank 4
expect 2 '--ranks takes a whole number' --ranks 0
expect 2 '--ranks takes a whole number' --ranks four
expect 2 '--ranks takes a whole number' --ranks -1
expect 2 '--ranks is given twice' --ranks 4 --ranks 4
expect 2 'give one of --ranks N and --mesh' --ranks 4 --mesh 2x2
expect 2 '--mesh takes NODESxRANKS' --mesh 4
expect 2 '--mesh takes NODESxRANKS' --mesh 2x200
expect 2 '--seed takes a whole number' --seed 1.5
expect 2 '--samples takes a whole number' --samples 0
expect 2 '--json needs a value' --json
expect 2 "not 'llama4'" llama4
expect 2 "not 'llama4'" --model llama4
expect 2 "no group 'blocks'" --model llama3.1-8b --group blocks
expect 2 'give one of' llama3.1-8b --model llama3.1-8b
expect 2 'give either' --model llama3.1-8b --model-file odd.json
expect 2 'one word too many' llama3.1-8b llama3.1-8b
expect 2 '--source takes one of' --source disk
expect 2 '--transport takes one of' --transport ring

# ---- an error is 3 and named -----------------------------------------------------------------------------------------

echo '{' >broken.json
expect 3 "cannot read 'none.json'" --model-file none.json
expect 3 'not JSON' --model-file broken.json
expect 3 "cannot write 'none/out.json'" "${odd[@]}" --json none/out.json
expect 3 'tide::ShardLayout: a sharded dimension other than 0 must be a multiple' "${odd[@]}" --ranks 7
expect 3 'tide::ShardLayout: ragged rows need one count per rank' "${odd[@]}" --group ragged
expect 3 'tide::Fabric: the arenas must fit into memory' llama3.1-70b --ranks 256

# ---- right is 0, for all shapes of ranks, sources and transports ------------------------------------------------------

for ranks in 1 2 3 5 20; do
  for source in shards masters; do
    for transport in unicast multicast; do
      expect 0 '' "${odd[@]}" --ranks $ranks --source $source --transport $transport --seed $ranks
    done
  done
  expect 0 '' "${odd[@]}" --ranks $ranks --lanes merged --no-flat
done
for mesh in 2x1 3x2 5x1 2x3; do
  for transport in unicast multicast; do
    expect 0 '' "${odd[@]}" --mesh $mesh --source shards --transport $transport
    expect 0 '' "${odd[@]}" --mesh $mesh --source masters --transport $transport --lanes merged
  done
done
expect 0 '' "${odd[@]}" --group ragged --mesh 3x1
expect 0 '' "${odd[@]}" --group ragged --ranks 3
expect 0 '' "${odd[@]}" --group once --ranks 64
expect 0 '' --model-file odd.json --group once --ranks 256 --samples 1 --no-flat
expect 0 '' --help
expect 0 '' --list
grep -q 'qwen3-30b-a3b.*393' out.txt || fail '--list does not show the block of 393 parameters'

# ---- a wrong byte is 1 -----------------------------------------------------------------------------------------------

expect 1 'tide gather is wrong: rank 2' "${odd[@]}" --ranks 3 --flip-bit gather
for operation in gather reduce; do
  expect 1 "tide $operation is wrong: rank " "${odd[@]}" --ranks 3 --flip-bit $operation --json wrong.json
  python wrong.json "$operation" <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
assert (found["model"], found["mesh"]) == ("odd", "1x3") and "rows" not in found, found
assert found["wrong"].startswith(f"tide {sys.argv[2]} is wrong: rank "), found
PY
done
expect 1 'tide reduce is wrong: rank 0' "${odd[@]}" --ranks 3 --flip-bit reduce

# ---- JSON ------------------------------------------------------------------------------------------------------------

expect 0 '' "${odd[@]}" --ranks 3 --json file.json
grep -q 'tide.gather' out.txt || fail 'no table beside a file of JSON'
expect 0 '' "${odd[@]}" --ranks 3 --json -
cp out.txt output.json
expect 0 '' "${odd[@]}" --ranks 3 --no-flat --json tide.json
python <<'PY'
import json
for name in "file.json", "output.json", "tide.json":
    report = json.load(open(name))
    assert report["model"] == "odd" and report["ranks"] == 3
    assert report["checked_bytes"] > 0
    names = [row["name"] for row in report["rows"]]
    flat = [] if name == "tide.json" else ["flat.gather", "flat.reduce"]
    assert sorted(names) == sorted(["tide.gather", "tide.reduce"] + flat), names
    for row in report["rows"]:
        assert len(row["samples_ms"]) == 2 and all(ms > 0 for ms in row["samples_ms"])
        assert min(row["samples_ms"]) <= row["median_ms"] <= max(row["samples_ms"])
        for key in "bytes_written", "copies", "buffer_bytes":
            assert isinstance(row[key], int) and row[key] >= 0, key
    rows = {row["name"]: row for row in report["rows"]}
    # Of the block: bytes of all parameters and of all gradients, elements.
    gathered = 7*13*2 + 4 + 3 + 5*2 + 33*7 + 15*8 + 129*3*2 + 360*2
    gradients = 7*13*2 + 4 + 3*2 + 5*2 + 33*7 + 15*8 + 129*3*4 + 360*2
    elements = 7*13 + 1 + 3 + 5 + 33*7 + 15 + 129*3 + 360
    assert rows["tide.gather"]["bytes_written"] == 3 * gathered
    assert rows["tide.reduce"]["bytes_written"] == 2 * gradients + 4 * elements
PY

# A rank whose thread cannot start is an error, not an abort; the others end with it.
(
  ulimit -v 400000
  expect 3 'could not be started' --model-file odd.json --group once --ranks 200 --samples 1
  exit "$failures"
)
failures=$((failures + $?))
verdict
