#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# What PyTorch's FSDP2 itself takes for one Llama-3.1-70B block on two GPUs, kernel by kernel, with nothing running beside
# them: the measure for the `stock` rows of bench_compare. Needs PyTorch 2.11.
#
#   torchrun --nproc-per-node 2 benchmarks/pytorch_fsdp2.py --json fsdp2.json --compare bench_compare.json
#
# exit code: 0 right, 1 gradients differ from a model that is not sharded, 2 bad usage, 3 a named error

import argparse
import copy
import datetime
import json
import os
import re
import statistics
import sys
import tempfile

# NVLink multicast stays off.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

# Kernels by what they do, as parts of their names; the first that fits. How often a step does it: the block is gathered
# twice (forward, backward) and reduced once.
KINDS = [
    ("all_gather", r"AllGather", 2),
    ("reduce_scatter", r"ReduceScatter", 1),
    ("copy_out", r"split_with_sizes_copy", 2),
    ("chunk_cat", r"chunk_cat", 1),
    ("cast", r"multi_tensor_apply_kernel.*Copy(Functor)?<c10::BFloat16, *float", 2),
    ("copy_in", r"multi_tensor_apply_kernel.*BFloat16.*Copy", 2),
]

# Which row of bench_compare's JSON is the same kernel.
ROWS = {
    "all_gather": {"operation": "gather", "path": "nccl", "policy": "default"},
    "reduce_scatter": {"operation": "reduce", "path": "nccl", "policy": "default", "source": "f32"},
    "copy_out": {"operation": "copy_out", "path": "stock"},
    "chunk_cat": {"operation": "chunk_cat", "path": "stock"},
    "cast": {"operation": "cast", "path": "stock"},
    "copy_in": {"operation": "copy_in", "path": "stock"},
}


def kind_of(name):
    return next((kind for kind, pattern, _ in KINDS if re.search(pattern, name)), None)


def parse():
    parser = argparse.ArgumentParser(description="Times the kernels of PyTorch's FSDP2; start it with torchrun.")
    parser.add_argument("--steps", type=int, default=7, help="profiled steps (default: 7)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a step: few, so that little overlaps")
    parser.add_argument("--json", help="writes what was measured")
    parser.add_argument("--compare", help="JSON of bench_compare: prints how its stock rows differ")
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.tokens < 1:
        parser.error("--steps and --tokens take positive numbers")
    return arguments


def make_block(nn, torch, dtype):
    width, narrow, wide = 8192, 1024, 28672

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = nn.Linear(width, width, bias=False)
            self.k_proj = nn.Linear(width, narrow, bias=False)
            self.v_proj = nn.Linear(width, narrow, bias=False)
            self.o_proj = nn.Linear(width, width, bias=False)
            self.gate_proj = nn.Linear(width, wide, bias=False)
            self.up_proj = nn.Linear(width, wide, bias=False)
            self.down_proj = nn.Linear(wide, width, bias=False)
            self.input_layernorm = nn.RMSNorm(width)
            self.post_attention_layernorm = nn.RMSNorm(width)

        def forward(self, x):
            h = self.input_layernorm(x)
            mixed = self.q_proj(h) + (self.k_proj(h) * self.v_proj(h)).repeat(1, width // narrow)
            x = x + self.o_proj(mixed)
            h = self.post_attention_layernorm(x)
            return x + self.down_proj(nn.functional.silu(self.gate_proj(h)) * self.up_proj(h))

    torch.manual_seed(1)
    with torch.device("cuda"):
        return Block().to(dtype)


def step(model, x):
    model(x).float().pow(2).mean().backward()


def kernels_of_step(torch, model, x):
    """Name, milliseconds and grid of every kernel and copy of one step, in order."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step(model, x)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    found = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in e]
    found.sort(key=lambda e: e["ts"])
    return [(e["name"], e["dur"] / 1e3, e.get("args", {}).get("grid")) for e in found]


def measure(torch, dist, source, arguments):
    """Times by kind, and how far the gradients are from those of a model that is not sharded."""
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dtype = torch.float32 if source == "f32" else torch.bfloat16
    block = make_block(nn, torch, dtype)
    reference = copy.deepcopy(block).to(torch.bfloat16)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if source == "f32" else None, reduce_dtype=torch.float32
    )
    model = nn.Sequential(block)
    fully_shard(block, mp_policy=policy, reshard_after_forward=True)
    fully_shard(model, mp_policy=policy)
    torch.manual_seed(100 + dist.get_rank())
    x = torch.randn(arguments.tokens, 8192, device="cuda", dtype=torch.bfloat16)

    step(reference, x)
    step(model, x)
    worst = 0.0
    for mine, other in zip(block.parameters(), reference.parameters()):
        whole = mine.grad.full_tensor().float()
        average = other.grad.float()
        dist.all_reduce(average)
        average /= dist.get_world_size()
        worst = max(worst, ((whole - average).norm() / average.norm()).item())
    del reference
    model.zero_grad(set_to_none=True)
    for _ in range(2):
        step(model, x)
        model.zero_grad(set_to_none=True)

    steps = []
    for _ in range(arguments.steps):
        dist.barrier()
        torch.cuda.synchronize()
        steps.append(kernels_of_step(torch, model, x))
        model.zero_grad(set_to_none=True)

    kinds = []
    for kind, _, times in KINDS:
        per_step = [[k for k in kernels if kind_of(k[0]) == kind] for kernels in steps]
        if not any(per_step):
            continue
        # A collective's kernel also waits for its peer; that of the rank which came last does not.
        own = [[duration for _, duration, _ in kernels] for kernels in per_step]
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, own)
        totals = []
        for index in range(arguments.steps):
            of_ranks = [ranks[index] for ranks in every]
            if kind in ("all_gather", "reduce_scatter"):
                totals.append(sum(min(same) for same in zip(*of_ranks)) / times)
            else:
                totals.append(statistics.mean(sum(durations) for durations in of_ranks) / times)
        first = next(kernels for kernels in per_step if kernels)[0]
        kinds.append(
            {
                "kind": kind,
                "source": source,
                "median_ms": statistics.median(totals),
                "samples_ms": totals,
                "launches": len(next(kernels for kernels in per_step if kernels)) / times,
                "grid": first[2],
                "name": first[0],
            }
        )
    others = {}
    for kernels in steps:
        for name, duration, _ in kernels:
            if kind_of(name) is None:
                others[name] = others.get(name, 0.0) + duration / len(steps)
    return kinds, worst, {n[:120]: t for n, t in sorted(others.items(), key=lambda e: -e[1]) if t > 0.05}


def compare(kinds, path):
    with open(path) as file:
        rows = json.load(file)["rows"]
    print(f"{'kernel':<16}{'source':<8}{'FSDP2 ms':>10}{'here ms':>10}{'ratio':>8}")
    for kind in kinds:
        wanted = dict(ROWS[kind["kind"]], model="llama3.1-70b", beside="none")
        found = [r for r in rows if all(r.get(key) == value for key, value in wanted.items())]
        if not found:
            continue
        here = found[0]["median_ms"]
        ratio = here / kind["median_ms"]
        verdict = "" if abs(ratio - 1) <= 0.15 else "  more than 15 % apart"
        print(f"{kind['kind']:<16}{kind['source']:<8}{kind['median_ms']:>10.3f}{here:>10.3f}{ratio:>8.2f}{verdict}")


def main():
    arguments = parse()
    if "LOCAL_RANK" not in os.environ:
        print("pytorch_fsdp2: start it with torchrun --nproc-per-node 2", file=sys.stderr)
        return 3
    try:
        import torch
        import torch.distributed as dist
        import torch.distributed.fsdp
    except ImportError as error:
        print(f"pytorch_fsdp2: PyTorch is needed: {error}", file=sys.stderr)
        return 3
    if not hasattr(torch.distributed.fsdp, "fully_shard"):
        print(f"pytorch_fsdp2: PyTorch {torch.__version__} has no fully_shard", file=sys.stderr)
        return 3
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() <= local:
        print(f"pytorch_fsdp2: rank {local} has no GPU", file=sys.stderr)
        return 3
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local), timeout=datetime.timedelta(seconds=60))
    all_kinds = []
    others = {}
    right = True
    for source in ("bf16", "f32"):
        kinds, worst, rest = measure(torch, dist, source, arguments)
        all_kinds += kinds
        others[source] = rest
        if worst > 1e-2:
            right = False
            print(f"pytorch_fsdp2: gradients of {source} differ by {worst:.3g} of their norm", file=sys.stderr)
        torch.cuda.empty_cache()
    code = 0 if right else 1
    if dist.get_rank() == 0:
        result = {
            "machine": f"{dist.get_world_size()} x {torch.cuda.get_device_name(0)}",
            "versions": {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "nccl": ".".join(str(n) for n in torch.cuda.nccl.version()),
            },
            "command": " ".join(sys.argv),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "kernels": all_kinds,
            "others_ms": others,
        }
        print(json.dumps(result, indent=1))
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(result, file, indent=1)
        if arguments.compare:
            compare(all_kinds, arguments.compare)
    dist.barrier()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
