#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tide_inspect: its exit codes, its JSON, what it says of plans that somebody altered.
#
#   bash tide_inspect.sh FOLDER_OF_PROGRAMS
#
# timeout: 300

source "$(dirname "$0")/../support/program.sh" "$1"

cat >small.json <<'JSON'
{"model": "small", "groups": [
  {"name": "head", "params": [{"name": "head.w", "shape": [9, 40], "dtype": "f32"}]},
  {"name": "block.0", "repeat": 3, "params": [
    {"name": "block.0.w", "shape": [7, 13], "dtype": "bf16"},
    {"name": "block.0.b", "shape": [2], "dtype": "bf16"},
    {"name": "block.0.v", "shape": [4, 6], "dtype": "bf16", "shard_dim": 1}]},
  {"name": "twin.0", "repeat": 3, "params": [
    {"name": "twin.0.w", "shape": [7, 13], "dtype": "bf16"},
    {"name": "twin.0.b", "shape": [2], "dtype": "bf16"},
    {"name": "twin.0.v", "shape": [4, 6], "dtype": "bf16", "shard_dim": 1}]}]}
JSON

# ---- bad usage is 2 --------------------------------------------------------------------------------------------------

expect 2 'give one of layout, plan, verify and memory'
expect 2 "not 'draw'" draw --model llama3.1-8b --mesh 1x4
expect 2 'give one of' layout llama3.1-8b --mesh 1x4
expect 2 "a model with --model or --model-file; there is 'llama3.1-8b', too" layout llama3.1-8b --mesh 1x4
expect 2 'give one of' layout plan --model llama3.1-8b --mesh 1x4
expect 2 "unknown flag '--mash'" layout --model llama3.1-8b --mash 1x4
expect 2 '--model needs a value' layout --mesh 1x4 --model
expect 2 '--json needs a value' layout --model llama3.1-8b --json --mesh 1x4
expect 2 '--mesh is given twice' layout --model llama3.1-8b --mesh 1x4 --mesh 1x4
expect 2 'give either --model' layout --mesh 1x4
expect 2 'give either --model' layout --mesh 1x4 --model llama3.1-8b --model-file small.json
expect 2 'takes one of' layout --mesh 1x4 --model llama9
expect 2 "not 'small.json'; a file is given as --model-file" layout --mesh 1x4 --model small.json
expect 2 "has no group 'blocks'; it has head, block.0, twin.0" layout --mesh 1x4 --model-file small.json --group blocks
expect 2 '--mesh NODESxRANKS is missing' layout --model llama3.1-8b
for mesh in 4 x 1x 1x4x2 1x-4 1x0 0x4 1x4.0 '1x4 ' 1X4 99999999999999999999x1; do
  expect 2 '--mesh takes NODESxRANKS' layout --model llama3.1-8b --mesh "$mesh"
done
expect 2 '--op takes one of gather, reduce' plan --model llama3.1-8b --mesh 1x4 --op scatter
expect 2 '--packing takes one of tight, fsdp2' layout --model llama3.1-8b --mesh 1x4 --packing loose
expect 2 '--machine takes' plan --model llama3.1-8b --mesh 1x4 --machine cpu:fast
expect 2 '--puts-in-flight takes a whole number' plan --model llama3.1-8b --mesh 2x2 --puts-in-flight 1
expect 2 '--exchange takes one of doubling, direct, in_switch' plan --model llama3.1-8b --mesh 2x2 --op reduce --exchange ring
expect 2 '--chunks takes a whole number' plan --model llama3.1-8b --mesh 1x4 --op reduce --chunks 0
expect 2 '--summary belongs to plan' verify --model llama3.1-8b --mesh 1x4 --summary
expect 2 '--estimate belongs to plan' verify --model llama3.1-8b --mesh 1x4 --estimate
expect 2 '--plan belongs to verify' plan --plan small.json
expect 2 'leave out --mesh' verify --plan small.json --mesh 1x4

expect 2 '--plan belongs to verify' layout --plan small.json
expect 2 '--prefetch belongs to memory' plan --model llama3.1-8b --mesh 1x4 --prefetch 2
expect 2 '--op belongs to plan and verify: it changes no layout' layout --model llama3.1-8b --mesh 1x4 --op reduce
expect 2 '--op belongs to plan and verify: it changes no layout' layout --model llama3.1-8b --mesh 1x4 --op gather
expect 2 '--group belongs to the other commands' memory --model llama3.1-8b --mesh 1x4 --group x
expect 2 '--exchange belongs to plan and verify: it changes no memory' memory --model llama3.1-8b --mesh 2x2 --exchange direct
expect 2 '--prefetch' memory --model llama3.1-8b --mesh 2x2 --prefetch -1
for flag in '--gradients table' '--finish accumulate' '--chunks 2' '--inbox-bytes 4096' '--exchange direct'; do
  for command in plan verify; do
    expect 2 "${flag% *} belongs to --op reduce" $command --model llama3.1-8b --mesh 2x2 $flag
  done
  expect 2 "${flag% *} belongs to plan and verify" layout --model llama3.1-8b --mesh 2x2 $flag
done
for flag in '--transport unicast' '--own copy' '--chunk-bytes 4096' '--puts-in-flight 4'; do
  for command in plan verify; do
    expect 2 "${flag% *} belongs to --op gather" $command --model llama3.1-8b --mesh 2x2 --op reduce $flag
  done
done
for mesh in 1x4 2x2; do
  for command in plan verify; do
    expect 2 '--own copy belongs to --transport unicast' \
      $command --model llama3.1-8b --mesh $mesh --transport multicast --own copy
  done
  expect 0 '' verify --model-file small.json --group head --mesh $mesh --transport multicast --own in_place
done
for flag in '--chunk-bytes 64' '--puts-in-flight 4' '--op reduce --exchange direct' '--op reduce --exchange doubling'; do
  for command in plan verify; do
    expect 2 'belongs to a mesh of several nodes' $command --model llama3.1-8b --mesh 1x4 $flag
  done
done
expect 2 '--json needs a value' layout --model llama3.1-8b --mesh 1x4 --json ''
expect 2 '--json needs a value' layout --model llama3.1-8b --mesh 1x4 --json=
expect 2 'given as --group=--value' layout --model llama3.1-8b --mesh 1x4 --group --x
cat >names.json <<'JSON'
{"model": "names", "groups": [
  {"name": "--x", "params": [{"name": "w\u001b[2J", "shape": [9, 40], "dtype": "f32"}]},
  {"name": "bell\u0007", "params": [{"name": "w", "shape": [9, 40], "dtype": "f32"}]}]}
JSON
expect 0 '' layout --model-file names.json --mesh 1x2 --group=--x
grep -qF 'w\x1b[2J' out.txt || fail 'a control character is not shown as its code'
expect 0 '' layout --model-file names.json --mesh 1x2
grep -qF 'bell\x07' out.txt || fail 'a control character is not shown as its code'
expect 0 '' plan --model-file names.json --mesh 1x2 --group=--x --print
LC_ALL=C grep -q '[[:cntrl:]]' <(tr -d '\n' <out.txt) && fail 'a control character is printed'
expect 2 'bell\x07' layout --model-file names.json --mesh 1x2 --group none
LC_ALL=C grep -q '[[:cntrl:]]' <(tr -d '\n' <err.txt) && fail 'a control character is printed'

expect 0 '' --help
grep -q 'usage: tide_inspect layout|plan|verify|memory' out.txt || fail 'no usage in --help'
expect 0 '' verify --help
for words in --help 'layout --model llama3.1-8b --mesh 1x4'; do
  got=0
  "$program" $words >/dev/full 2>err.txt || got=$?
  [[ $got -eq 3 ]] && grep -q 'cannot write to standard output' err.txt || fail "full: $got, $(cat err.txt): $words"
  got=0
  "$program" $words 2>err.txt >&- || got=$?
  [[ $got -eq 3 ]] && grep -q 'cannot write to standard output' err.txt || fail "closed: $got, $(cat err.txt): $words"
done

# ---- a named error is 3 ----------------------------------------------------------------------------------------------

expect 3 "cannot read 'nowhere.json'" layout --model-file nowhere.json --mesh 1x4
expect 3 "cannot read 'nowhere.json'" verify --plan nowhere.json
expect 3 'cannot read' verify --plan .
expect 3 'a mesh has at most 65535 ranks' layout --model llama3.1-8b --mesh 1x70000
expect 3 'at most 4,096 ranks are planned' plan --model llama3.1-8b --mesh 1x60000
expect 3 'rows in a run, it follows at most 268,435,456' \
  verify --model llama3.1-70b --group model.layers.0 --op reduce --mesh 512x8
expect 3 'tide::Ring: Bytes must hold' plan --model llama3.1-8b --mesh 1x4 --op reduce --inbox-bytes 100
expect 3 'cannot write' layout --model llama3.1-8b --mesh 1x4 --json nowhere/out.json
expect 3 'cannot write' plan --model llama3.1-8b --mesh 1x4 --json /dev/full
# A file that cannot be written is found out first, and one that could be is not left empty after an error.
expect 3 'cannot write' plan --model llama3.1-8b --mesh 1x60000 --json nowhere/out.json
expect 3 'cannot write' verify --model llama3.1-8b --mesh 1x60000 --json nowhere/out.json
expect 3 'cannot write' verify --plan nowhere.json --json nowhere/out.json
expect 3 'ranks are planned' plan --model llama3.1-8b --mesh 1x60000 --json early.json
[[ ! -e early.json ]] || fail 'an empty file is left after an error'
echo '{"model": "m", "groups": [{"name": "g", "params": [{"name": "s", "shape": [], "dtype": "bf16"}]}]}' >scalar.json
expect 3 'tide::ShardLayout: a parameter needs at least one dimension' layout --model-file scalar.json --mesh 1x4
expect 3 "Parameter 's'" plan --model-file scalar.json --mesh 1x4
expect 3 'must be a multiple of the ranks' verify --model-file small.json --group block.0 --mesh 1x4
echo '{"model": "m", "groups": [{"name": "g", "params": [{"name": "s", "shape": [1000000000, 1000000000, 1000000000], "dtype": "bf16"}]}]}' >huge.json
expect 3 'a group must have fewer than 2^' layout --model-file huge.json --mesh 1x4
echo '{"model": "m", "groups": [{"name": "g", "params": [{"name": "s", "shape": [10000, 1000000000], "dtype": "f64"}, {"name": "t", "shape": [4], "dtype": "f64"}]}]}' >big.json
expect 3 'more elements than this program counts' plan --model-file big.json --mesh 1x60000
# What will not fit into the memory that this program may take is refused before it is begun, or names the group.
sed 's/10000, 1000000000/17592186044000/' big.json >chunks.json
for command in plan verify; do
  (
    ulimit -v 6000000
    started=$SECONDS
    expect 3 "plans of group 'g' on 1 ranks need about" $command --model-file chunks.json --mesh 1x1 --op reduce
    [[ $((SECONDS - started)) -lt 5 ]] || fail 'that memory does not suffice is found out late'
    exit "$failures"
  )
  failures=$((failures + $?))
done
for garbage in '' '{' 'null' '[]' '3' '{}' '{"layout": 1}' '{"model": "m"}' $'\xff\xfe' '{"groups": {}}' '{"mesh": "1x2", "layout": {}}'; do
  printf '%s' "$garbage" >garbage.json
  expect 3 garbage.json verify --plan garbage.json
  expect 3 garbage.json layout --model-file garbage.json --mesh 1x2
done
head -c 100000 /dev/urandom >garbage.json
cp small.json nul.json
printf '\0 garbage {{{' >>nul.json
expect 3 "'nul.json': this is not JSON: byte $(stat -c %s small.json) is NUL" layout --model-file nul.json --mesh 1x2
expect 3 "'nul.json': this is not JSON: byte" verify --plan nul.json
sed 's/head\.w/head\\u0000w/' small.json >nul.json
expect 3 'a name or text must not hold NUL, as "head\u0000w" does' layout --model-file nul.json --mesh 1x2
expect 3 garbage.json verify --plan garbage.json
printf '%.0s[' {1..100000} >garbage.json
expect 3 garbage.json verify --plan garbage.json
expect 3 garbage.json layout --model-file garbage.json --mesh 1x2

# ---- layout ----------------------------------------------------------------------------------------------------------

expect 0 '' layout --model-file small.json --mesh 1x3 --json -
python out.txt <<'PY'
import json, sys
layout = json.load(open(sys.argv[1]))
assert list(layout) == ["model", "mesh", "packing", "groups"], list(layout)
assert (layout["model"], layout["mesh"], layout["packing"]) == ("small", "1x3", "tight")
assert [(g["name"], g["repeat"]) for g in layout["groups"]] == [("head", 1), ("block.0", 3), ("twin.0", 3)]
block = layout["groups"][1]
assert list(block) == ["name", "repeat", "bytes", "shard_bytes", "gathered_bytes", "pad_bytes", "params"], list(block)
w, b, v = block["params"]
assert list(w) == ["name", "offset", "shards"]
assert [p["name"] for p in block["params"]] == ["block.0.w", "block.0.b", "block.0.v"]
assert [p["offset"] for p in block["params"]] == [0, 256, 512]
assert [s["rows"] for s in w["shards"]] == [[0, 3], [3, 6], [6, 7]]
assert [s["bytes"] for s in w["shards"]] == [78, 78, 26]
assert [s["rows"] for s in b["shards"]] == [[0, 1], [1, 2], [2, 2]]
assert [s["bytes"] for s in b["shards"]] == [2, 2, 0]
assert [s["rows"] for s in v["shards"]] == [[0, 2], [2, 4], [4, 6]]
assert [s["offset"] for s in b["shards"]] == [80, 80, 32]
assert [s["offset"] for s in v["shards"]] == [96, 96, 32]
assert [s["rank"] for s in v["shards"]] == [0, 1, 2]
assert block["bytes"] == 182 + 4 + 48
assert block["shard_bytes"] == 96 + 16 and block["gathered_bytes"] == 112 + 112 + 48
assert block["pad_bytes"] == block["gathered_bytes"] - block["bytes"]
PY

expect 0 '' layout --model-file small.json --mesh 1x3 --group block.0 --packing fsdp2 --json file.json
grep -q 'block.0' out.txt || fail 'no table beside --json FILE'
python file.json <<'PY'
import json, sys
layout = json.load(open(sys.argv[1]))
(block,) = layout["groups"]
assert layout["packing"] == "fsdp2"
assert block["shard_bytes"] == 2 * (3 * 13 + 1 + 8) and block["gathered_bytes"] == 3 * block["shard_bytes"]
assert [s["offset"] for s in block["params"][2]["shards"]] == [80, 80, 80]
PY

sed 's/"model": "small", //' small.json >nameless.json
expect 0 '' layout --model-file nameless.json --mesh 1x3 --json -
grep -q '{"model": "nameless", "mesh": "1x3"' out.txt || fail 'a model without a name has not that of its file'

# What is not UTF-8 in a file's name is not in the JSON either.
broken=$'br\xffken.\xc3\xa4.json'
cp nameless.json "$broken"
for command in layout memory 'plan --group head' 'verify --group head'; do
  expect 0 '' $command --model-file "$broken" --mesh 1x3 --json file.json
  python file.json <<'PY'
import json, sys
assert json.load(open(sys.argv[1], encoding="utf-8")).get("model", "br\ufffdken.\u00e4") == "br\ufffdken.\u00e4"
PY
  [[ $command != plan* ]] || expect 0 '' verify --plan file.json
done

echo '{"model": "m", "groups": [{"name": "g", "params": [{"name": "w", "shape": [5], "dtype": "bf16"}]}], "tied": [["v", "w"]]}' >tied.json
expect 0 '' layout --model-file tied.json --mesh 1x3 --json file.json
grep -q 'w = v .* 2 x2, 1 ' out.txt || fail 'the table does not show a tie, or the rows of each rank'
grep -q '"aliases": \[{"name": "v", "target": "w"}\]' file.json || fail 'no alias in the JSON of a layout'

# A slot cannot hold gradients that are wider than their parameters: the path is left out, and it is said why.
cat > wide_gradients.json <<'JSON'
{"model": "wide", "groups": [
  {"name": "first", "params": [{"name": "a", "shape": [4, 4], "dtype": "bf16"}]},
  {"name": "second", "params": [{"name": "b", "shape": [4, 4], "dtype": "bf16", "gradient": "f32"}]}]}
JSON
reason="gradients of 'second' are wider than its parameters, and find no room in a slot"
expect 0 '' memory --model-file wide_gradients.json --mesh 1x2 --json file.json
grep -qF "no tide.slots: $reason" out.txt || fail 'a path is left out in silence'
grep -q '^tide.slots' out.txt && fail 'a path that there is not'
python3 -c 'import json, sys; assert json.load(open("file.json"))["no_slots"] == sys.argv[1]' "$reason"

# ---- memory: step_memory.test.cpp checks the numbers -------------------------------------------------------------------

expect 0 '' memory --model-file small.json --mesh 3x1 --prefetch 2 --gradient-buffers 1 --json file.json
grep -q 'tide.ring' out.txt || fail 'no table of memory'
python file.json <<'PY'
import json, sys
memory = json.load(open(sys.argv[1]))
assert (memory["model"], memory["mesh"], memory["prefetch"], memory["gradient_buffers"]) == ("small", "3x1", 2, 1)
paths = {path["path"]: path for path in memory["paths"]}
assert {"tide.ring", "stock", "symmetric"} <= set(paths), paths
for path in memory["paths"]:
    assert path["peak_bytes"] == sum(term["bytes"] for term in path["terms"]) > 0, path
PY

# The largest group that there may be, as often as flags allow: all that is added up fits into 64 bits.
echo '{"model": "m", "groups": [{"name": "g", "repeat": 1000000, "params": [{"name": "w", "shape": [17592186044415], "dtype": "f64"}]}]}' >wide.json
for flag in --prefetch --gradient-buffers; do
  expect 0 '' memory --model-file wide.json --mesh 1x4 $flag 255
  grep -q '^path' out.txt || fail "no table of bytes: $(head -c 200 out.txt)"
  grep -qE -- ' -[0-9]' out.txt && fail "negative bytes: $(grep -E -- ' -[0-9]' out.txt | head -1)"
done

# Numbers of PyTorch's own objects.
check_metrics() {
  local model=$1 ranks=$2
  expect 0 '' layout --model "$model" --mesh "1x$ranks" --packing fsdp2 --json named.json
  expect 0 '' layout --model-file "$tests/data/models/$model.json" --mesh "1x$ranks" --packing fsdp2 --json file.json
  cmp -s named.json file.json || fail "$model on $ranks ranks: --model and --model-file differ"
  python "$model" "$ranks" "$tests/data/metrics.json" named.json <<'PY'
import json, sys
model, ranks, metrics, layout = sys.argv[1:]
groups = json.load(open(layout))["groups"]
wanted = json.load(open(metrics))[model][ranks]["groups"]
keys = ["name", "repeat", "bytes", "shard_bytes", "gathered_bytes", "pad_bytes"]
assert [[g[k] for k in keys] for g in groups] == [[g[k] for k in keys] for g in wanted]
for group, numbers in zip(groups, wanted):
    assert len(group["params"]) == numbers["params"]
    shards = [s for p in group["params"] for s in p["shards"]]
    assert sum(s["bytes"] for s in shards) == group["bytes"]
    assert sum(s["bytes"] > 0 for s in shards) == numbers["pieces"] and len(shards) == numbers["slots"]
    assert min(s["bytes"] for s in shards if s["bytes"]) == numbers["min_run"]
PY
}
check_metrics llama3.1-70b 8
check_metrics llama3.1-70b 72
check_metrics llama3.1-8b.torchtitan 6
check_metrics qwen3-30b-a3b 24
check_metrics wan2.2-t2v-a14b 3
check_metrics wan2.2-ti2v-5b 64

expect 0 '' layout --model llama3.1-70b --group model.layers.0 --mesh 1x8 --packing fsdp2 --json -
python out.txt <<'PY'
import json, sys
(block,) = json.load(open(sys.argv[1]))["groups"]
assert (block["repeat"], block["bytes"], block["shard_bytes"], block["gathered_bytes"], block["pad_bytes"]) == (
    80, 1711308800, 213913600, 1711308800, 0)
assert block["params"][0]["shards"][7] == {"rank": 7, "rows": [7168, 8192], "offset": 0, "bytes": 16777216}
PY

# ---- plan ------------------------------------------------------------------------------------------------------------

expect 0 '' plan --model-file small.json --mesh 1x3 --json gather.json
expect 0 '' plan --model-file small.json --mesh 1x3 --group head --op reduce --chunks 2 --inbox-bytes 1024 --json reduce.json
python gather.json reduce.json <<'PY'
import json, sys
for path, op, group, bytes_ in zip(sys.argv[1:], ["gather", "reduce"], ["block.0", "head"], [0, 1024]):
    plan = json.load(open(path))
    for key in ["layout", "mesh", "op", "ranks", "constants", "bound"]:
        assert key in plan, key
    assert (plan["mesh"], plan["op"], plan["layout"]["group"]) == ("1x3", op, group)
    assert list(plan["constants"]) == ["slot_bytes", "inbox_bytes", "driver_calls"]
    assert list(plan["bound"]) == ["seconds", "machine", "binding"]
    assert plan["bound"]["seconds"] > 0 and plan["bound"]["machine"] == "h200_node" and "rank" in plan["bound"]["binding"]
    assert plan["constants"]["inbox_bytes"] == bytes_, plan["constants"]
    assert plan["constants"]["slot_bytes"] == (768 if op == "gather" else 1536)
    assert [rank["rank"] for rank in plan["ranks"]] == [0, 1, 2]
    for rank in plan["ranks"]:
        ops = [op for lane in rank["lanes"] for op in lane["ops"]]
        assert rank["lanes"][0]["name"] == "caller"
        assert sorted(op["seq"] for op in ops) == list(range(len(ops)))
        assert all("op" in op for op in ops)
        for lane in rank["lanes"]:
            assert [op["seq"] for op in lane["ops"]] == sorted(op["seq"] for op in lane["ops"])
PY
expect 0 '' verify --plan gather.json
expect 0 '' verify --plan reduce.json
for how in '--transport multicast' '--transport multicast --own cast' '--own cast' '--own in_place' '--packing fsdp2' \
  '--op reduce --finish accumulate' '--op reduce --gradients table --packing fsdp2'; do
  read -ra flags <<<"$how"
  expect 0 '' plan --model-file small.json --mesh 1x3 "${flags[@]}" --json some.json
  expect 0 '' verify --plan some.json
done
expect 0 '' plan --model-file small.json --mesh 1x1 --json some.json
expect 0 '' verify --plan some.json

for mesh in 3x1 2x3 3x2; do
  for how in '' '--transport multicast' '--own cast' '--own in_place --chunk-bytes 16 --puts-in-flight 2' \
    '--op reduce --group head' '--op reduce --exchange direct --finish accumulate' \
    '--op reduce --exchange in_switch'; do
    read -ra flags <<<"$how"
    expect 0 '' plan --model-file small.json --mesh "$mesh" "${flags[@]}" --json some.json
    expect 0 '' verify --plan some.json
    expect 0 '' verify --model-file small.json --mesh "$mesh" "${flags[@]}"
  done
  expect 0 '' layout --model-file small.json --mesh "$mesh" --json -
done
expect 0 '' plan --model llama3.1-70b --mesh 8x8 --summary --json -
python out.txt <<'PY'
import json, sys
constants = json.load(open(sys.argv[1]))["constants"]
# Seven packed shards of other nodes and the own one, of 1,711,308,800 / 64 bytes.
assert constants["network_bytes"] == 8 * 26739200 and constants["slot_bytes"] == 1711308800, constants
assert constants["driver_calls"] < 1000, constants
PY
expect 0 '' verify --model llama3.1-8b --group model.layers.0 --mesh 4x4

# The time grows with the ops of the plans, not as the cube of the nodes; most of them have no rows here.
expect 0 '' plan --model-file small.json --group head --mesh 1024x1 --summary

expect 0 '' plan --model llama3.1-8b --mesh 2x2 --summary
grep -q '^network_bytes [0-9,]*, memory beside each slot$' out.txt || fail 'network_bytes reads like what crosses'
expect 0 '' plan --model llama3.1-8b --mesh 2x2 --op reduce --summary
grep -q 'network_bytes' out.txt && fail 'a reduce has no memory beside slots'
expect 0 '' plan --model llama3.1-8b --mesh 2x2 --op reduce --summary --estimate --json -
python out.txt <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
assert list(summary) == ["constants", "bound", "estimate"] and list(summary["estimate"]) == ["seconds", "of_bound"]
assert summary["estimate"]["seconds"] >= summary["bound"]["seconds"] > 0
assert summary["estimate"]["of_bound"] == summary["bound"]["seconds"] / summary["estimate"]["seconds"]
PY
expect 0 '' plan --model qwen3-30b-a3b --mesh 1x8 --summary --machine cpu:10 --json -
python out.txt <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
assert list(summary) == ["constants", "bound"]
assert summary["constants"]["slot_bytes"] >= 1246241280
assert summary["bound"]["machine"] == "cpu:10" and "memory shared" in summary["bound"]["binding"]
PY
expect 0 '' plan --model llama3.1-8b --mesh 1x2 --print
grep -q "copy  .*-> rank 1 slot\[0.*'model.layers.0.self_attn.q_proj.weight'" out.txt || fail 'no readable copy in --print'

# ---- verify ----------------------------------------------------------------------------------------------------------

expect 0 '' verify --model-file small.json --mesh 1x3 --json -
python out.txt gather.json <<'PY'
import json, sys
verdict, plan = (json.load(open(path)) for path in sys.argv[1:])
assert list(verdict) == ["holds", "violations", "ops", "seconds"]
assert verdict["holds"] is True and verdict["violations"] == [] and verdict["seconds"] >= 0
block = sum(len(lane["ops"]) for rank in plan["ranks"] for lane in rank["lanes"])
assert block < verdict["ops"] < 2 * block  # block and head; twin has the plans of block
PY
expect 0 '' verify --model llama3.1-8b --mesh 1x4
expect 0 '' verify --model wan2.2-ti2v-5b --group blocks.0 --mesh 1x3 --op reduce

# Every op counts: without any one of them a law is violated, and the verdict says which ops.
python "$program" gather.json reduce.json <<'PY'
import json, subprocess, sys
inspect, *paths = sys.argv[1:]
removed = 0
for path in paths:
    plan = json.load(open(path))
    for rank in plan["ranks"]:
        for lane in rank["lanes"]:
            for i in range(len(lane["ops"])):
                op = lane["ops"].pop(i)
                json.dump(plan, open("fewer.json", "w"))
                run = subprocess.run([inspect, "verify", "--plan", "fewer.json", "--json", "-"], capture_output=True, text=True)
                lane["ops"].insert(i, op)
                assert run.returncode == 1, (path, rank["rank"], lane["name"], op, run)
                verdict = json.loads(run.stdout)
                assert verdict["holds"] is False and verdict["violations"]
                for violation in verdict["violations"]:
                    assert violation["law"] and isinstance(violation["ops"], list)
                    assert violation["text"] in run.stderr
                removed += 1
assert removed > 100, removed
PY

# alter FILE PYTHON: writes altered.json, with `plan` changed.
alter() {
  python3 -c 'import json, sys
plan = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(plan, open("altered.json", "w"))' "$@" || fail "altering $1"
}
one='[op for lane in plan["ranks"][1]["lanes"] for op in lane["ops"] if op["op"] == "copy" and op["peer"] == 2][0]'
alter gather.json "$one[\"width\"] += 1"
expect 1 'law ' verify --plan altered.json
alter gather.json "$one[\"target\"][\"offset\"] += 2"
expect 1 'law ' verify --plan altered.json
alter gather.json "$one[\"peer\"] = 0"
expect 1 'law ' verify --plan altered.json
expect 0 '' plan --model-file small.json --mesh 3x1 --json nodes.json
put='[op for lane in plan["ranks"][1]["lanes"] for op in lane["ops"] if op["op"] == "put"][0]'
alter nodes.json "$put[\"peer\"] = 0"
expect 1 'law ' verify --plan altered.json
alter nodes.json "$put[\"target\"][\"offset\"] += 2"
expect 1 'law ' verify --plan altered.json
alter nodes.json 'plan["network"]["puts_in_flight"] = 0'
expect 1 'may not be in flight' verify --plan altered.json
alter nodes.json 'del plan["network"]'
expect 3 "the key 'network' is missing" verify --plan altered.json
alter gather.json "$one[\"peer\"] = 99"
expect 1 'law ' verify --plan altered.json
alter gather.json 'plan["ranks"][0]["lanes"] = plan["ranks"][0]["lanes"][:1]'
expect 1 'law ' verify --plan altered.json
for file in gather.json reduce.json over-nodes.json; do  # `param` of every op that has one, one after the other
  [[ $file != over-nodes.json ]] || expect 0 '' plan --model-file small.json --mesh 2x3 --json $file
  python $file "$program" <<'PY'
import copy, json, subprocess, sys
plan = json.load(open(sys.argv[1]))
params = len(plan["layout"]["params"])
named = [(r, l, o) for r, rank in enumerate(plan["ranks"]) for l, lane in enumerate(rank["lanes"])
         for o, op in enumerate(lane["ops"]) if "param" in op]
assert named
for r, l, o in named[::1 + len(named) // 8]:
    for other in (plan["ranks"][r]["lanes"][l]["ops"][o]["param"] + 1, 7):
        altered = copy.deepcopy(plan)
        altered["ranks"][r]["lanes"][l]["ops"][o]["param"] = other % max(params, 8)
        json.dump(altered, open("altered.json", "w"))
        done = subprocess.run([sys.argv[2], "verify", "--plan", "altered.json"], capture_output=True, text=True)
        assert done.returncode == 1 and ("law 8" in done.stderr or "law 6" in done.stderr), (r, l, o, done)
PY
done
alter gather.json 'plan["ranks"][0]["exits"] = []'
expect 1 'law ' verify --plan altered.json
alter gather.json "del $one[\"width\"]"
expect 3 "rank 1, lane 'push 1', op 2 of it: the key 'width' is missing" verify --plan altered.json
alter gather.json "$one[\"width\"] = 1e99"
expect 3 "rank 1, lane 'push 1', op 2 of it: 'width' must be a whole number" verify --plan altered.json
alter gather.json 'plan["layout"]["params"][0]["name"] = "w\0v"'
expect 3 'a name or text must not hold NUL, as "w\u0000v" does' verify --plan altered.json
alter gather.json 'del plan["ranks"][2]'
expect 3 "'ranks' must hold the 3 ranks" verify --plan altered.json

verdict
