#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# What PyTorch's FSDP2 itself takes on two GPUs. Needs PyTorch 2.11.
#
# For one Llama-3.1-70B block, kernel by kernel, with nothing running beside them: the measure for the `stock` rows of
# bench_compare.
#
#   torchrun --nproc-per-node 2 benchmarks/pytorch_fsdp2.py --json fsdp2.json --compare bench_compare.json
#
# For a training step of the blocks that bench_step computes with (benchmarks/support/step_block.cuh), beside forward
# and backward of a bf16 copy that is not sharded: rows for bench_step, which starts it.
#
#   bench_step --pytorch "torchrun --nproc-per-node 2 benchmarks/pytorch_fsdp2.py"
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
    parser.add_argument("--tokens", type=int, help="tokens of a step: 64, so that little overlaps; 8192 with --step")
    parser.add_argument("--step", action="store_true", help="times a whole training step, as bench_step does")
    parser.add_argument("--layers", type=int, default=4, help="blocks of --step (default: 4)")
    parser.add_argument("--hidden", type=int, default=8192, help="width of a block of --step (default: 8192)")
    parser.add_argument("--samples", type=int, default=15, help="turns of --step (default: 15)")
    parser.add_argument("--warmup", type=int, default=3, help="turns before them (default: 3)")
    parser.add_argument("--json", help="writes what was measured")
    parser.add_argument("--compare", help="JSON of bench_compare: prints how its stock rows differ")
    arguments = parser.parse_args()
    if arguments.tokens is None:
        arguments.tokens = 8192 if arguments.step else 64
    if min(arguments.steps, arguments.tokens, arguments.layers, arguments.samples) < 1 or arguments.warmup < 0:
        parser.error("numbers must be positive")
    if arguments.hidden < 1024 or arguments.hidden % 1024 != 0:
        parser.error("--hidden takes a multiple of 1024")
    if arguments.step and arguments.compare:
        parser.error("--compare says nothing of --step")
    return arguments


def add_projections(nn, block, width, narrow, wide):
    block.q_proj = nn.Linear(width, width, bias=False)
    block.k_proj = nn.Linear(width, narrow, bias=False)
    block.v_proj = nn.Linear(width, narrow, bias=False)
    block.o_proj = nn.Linear(width, width, bias=False)
    block.gate_proj = nn.Linear(width, wide, bias=False)
    block.up_proj = nn.Linear(width, wide, bias=False)
    block.down_proj = nn.Linear(wide, width, bias=False)


def make_block(nn, torch, dtype):
    width, narrow, wide = 8192, 1024, 28672

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            add_projections(nn, self, width, narrow, wide)
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


HEAD = 128
HEADS_OF_KEY = 8


def make_attention(torch):
    """Two batched products, without softmax, of every token with every token; an eighth of the heads at a time."""

    def heads(matrix, j):
        return matrix.view(matrix.shape[0], -1, HEADS_OF_KEY, HEAD)[:, :, j].transpose(0, 1)

    def of_keys(matrix):
        return matrix.view(matrix.shape[0], -1, HEAD).transpose(0, 1)

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            ctx.factor = (HEAD * q.shape[0]) ** -0.5
            mixed = torch.empty_like(q)
            scores = q.new_empty(k.shape[1] // HEAD, q.shape[0], q.shape[0])
            for j in range(HEADS_OF_KEY):
                scores.baddbmm_(heads(q, j), of_keys(k).transpose(1, 2), beta=0, alpha=ctx.factor)
                heads(mixed, j).baddbmm_(scores, of_keys(v), beta=0)
            return mixed

        @staticmethod
        def backward(ctx, d_mixed):
            q, k, v = ctx.saved_tensors
            d_mixed = d_mixed.contiguous()
            d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
            scores = q.new_empty(k.shape[1] // HEAD, q.shape[0], q.shape[0])
            d_scores = torch.empty_like(scores)
            for j in range(HEADS_OF_KEY):
                adds = 1 if j > 0 else 0
                scores.baddbmm_(heads(q, j), of_keys(k).transpose(1, 2), beta=0, alpha=ctx.factor)
                of_keys(d_v).baddbmm_(scores.transpose(1, 2), heads(d_mixed, j), beta=adds)
                d_scores.baddbmm_(heads(d_mixed, j), of_keys(v).transpose(1, 2), beta=0)
                heads(d_q, j).baddbmm_(d_scores, of_keys(k), beta=0, alpha=ctx.factor)
                of_keys(d_k).baddbmm_(d_scores.transpose(1, 2), heads(q, j), beta=adds, alpha=ctx.factor)
            return d_q, d_k, d_v

    return Attention.apply


def make_step_block(nn, torch, width):
    attention = make_attention(torch)
    narrow, wide = width // HEADS_OF_KEY, width // 2 * 7

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            add_projections(nn, self, width, narrow, wide)
            self.input_norm = nn.Parameter(torch.zeros(width))
            self.attention_norm = nn.Parameter(torch.zeros(width))

        def forward(self, x):
            h = x + self.input_norm
            x = x + self.o_proj(attention(self.q_proj(h), self.k_proj(h), self.v_proj(h)))
            h = x + self.attention_norm
            return x + self.down_proj(self.gate_proj(h) + self.up_proj(h))

    return Block()


def make_step_model(nn, torch, arguments, device):
    torch.manual_seed(1)
    with torch.device(device):
        return nn.Sequential(*[make_step_block(nn, torch, arguments.hidden) for _ in range(arguments.layers)])


def products(model, x):
    """Forward and backward of |output|^2 / 2."""
    y = model(x)
    y.backward(y.detach())


def measure_step(torch, dist, arguments, free_before):
    """Rows of FSDP2 and of forward and backward without shards, and how far their gradients are apart."""
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = make_step_model(nn, torch, arguments, "cuda")
    for number, block in enumerate(model):
        # The last block is needed again at once, and stays.
        fully_shard(block, mp_policy=policy, reshard_after_forward=number + 1 < len(model))
    fully_shard(model, mp_policy=policy)
    # A rate of nothing, which is as much work: weights that training lets run away take less power to multiply.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=True)
    torch.cuda.empty_cache()
    torch.manual_seed(100 + dist.get_rank())
    x = (torch.rand(arguments.tokens, arguments.hidden, device="cuda", dtype=torch.bfloat16) - 0.5) * 3.4

    def fsdp2():
        products(model, x)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def largest(value):
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, value)
        return max(every)

    products(model, x)
    sharded = [parameter.grad.full_tensor().to("cpu") for parameter in model.parameters()]
    optimizer.zero_grad(set_to_none=True)
    # Memory while nothing else is there. What the allocator has taken it keeps.
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        fsdp2()
    torch.cuda.synchronize()
    peak = largest(free_before - torch.cuda.mem_get_info()[0])
    allocated = largest(torch.cuda.max_memory_allocated())

    plain = make_step_model(nn, torch, arguments, "cuda").to(torch.bfloat16)
    torch.cuda.empty_cache()
    products(plain, x)
    worst = 0.0
    for gradient, parameter in zip(sharded, plain.parameters()):
        average = parameter.grad.float()
        dist.all_reduce(average)
        average /= dist.get_world_size()
        worst = max(worst, ((gradient.to("cuda") - average).norm() / average.norm()).item())
    del sharded
    plain.zero_grad(set_to_none=True)

    def compute():
        products(plain, x)
        plain.zero_grad(set_to_none=True)

    samples = {fsdp2: [], compute: []}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for turn in range(-arguments.warmup, arguments.samples):
        for work, times in samples.items():
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            time = largest(begin.elapsed_time(end))
            if turn >= 0:
                times.append(time)
    if not all(torch.isfinite(parameter.to_local()).all().item() for parameter in model.parameters()):
        worst = float("nan")
    row = {"operation": "step", "policy": "fully_shard, f32 masters, SGD"}
    rows = [
        dict(row, path="pytorch_fsdp2", samples_ms=samples[fsdp2], peak_bytes=peak, allocated_bytes=allocated),
        dict(row, path="pytorch_compute", policy="bf16, no optimizer", samples_ms=samples[compute]),
    ]
    for each, work in zip(rows, samples):
        each["median_ms"] = statistics.median(each["samples_ms"])
        each["kernels_ms"] = kernel_sums(torch, work)
    return rows, worst


def kernel_sums(torch, work):
    """What the kernels of one step take, by what they do; they overlap. Products are what is no other kind."""
    sums = {}
    for name, duration, _ in kernels_of(torch, work):
        kind = kind_of(name) or ("products" if re.search(r"gemm|nvjet|cutlass", name) else "other")
        sums[kind] = sums.get(kind, 0.0) + duration
    return sums


def step(model, x):
    model(x).float().pow(2).mean().backward()


def kernels_of(torch, work):
    """Name, milliseconds and grid of every kernel and copy of what `work()` enqueues, in order."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
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
        steps.append(kernels_of(torch, lambda: step(model, x)))
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
    torch.zeros(1, device="cuda")
    free_before = torch.cuda.mem_get_info()[0]
    dist.init_process_group("nccl", device_id=torch.device("cuda", local), timeout=datetime.timedelta(seconds=60))
    right = True

    def judge(what, worst):
        nonlocal right
        if not worst <= 1e-2:
            right = False
            print(f"pytorch_fsdp2: gradients of {what} differ by {worst:.3g} of their norm", file=sys.stderr)

    found = {}
    if arguments.step:
        found["rows"], worst = measure_step(torch, dist, arguments, free_before)
        judge("a step", worst)
    else:
        found = {"kernels": [], "others_ms": {}}
        for source in ("bf16", "f32"):
            kinds, worst, rest = measure(torch, dist, source, arguments)
            found["kernels"] += kinds
            found["others_ms"][source] = rest
            judge(source, worst)
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
            **found,
        }
        print(json.dumps(result, indent=1))
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(result, file, indent=1)
        if arguments.compare:
            compare(found["kernels"], arguments.compare)
    dist.barrier()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
