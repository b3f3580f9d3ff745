#!/usr/bin/env python3
"""step.py: a training step of dtc's program beside PyTorch's, on the same model (gpt.dt), data and cores.

  tests/bench/run.sh [--cores 1|2] [--rounds 7]

The two alternate inside one run; the ratio is that of the medians of all steps (> 1: dtc is faster). PyTorch is timed
eager and compiled, each with its fused attention and fused AdamW; the better one counts. The ratio of processor time
says the same where others use the machine (dtc's has its start in it: memory, parameters). At the end: where dtc's step
goes, beside what the same cores reach in a large product and a large copy, measured just before.
"""
import argparse, json, os, resource, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
WARMUP, STEPS = 2, 5  # per round; the first ones are not counted


def ceilings(threads):
    """A product and a copy, best of several: GFLOP/s and GB/s (bytes read and written)."""
    import torch

    torch.set_num_threads(threads)
    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    big = torch.ones(64 << 20)
    to = torch.empty_like(big)

    def best(f, n):
        took = []
        for _ in range(n):
            start = time.perf_counter()
            f()
            took.append(time.perf_counter() - start)
        return min(took)

    product, copy = best(lambda: torch.mm(a, b), 15), best(lambda: to.copy_(big), 8)
    print(f"ceilings on {threads} core(s): product {2 * 1536**3 / product * 1e-9:.1f} GFLOP/s, copy {2 * big.nbytes / copy * 1e-9:.1f} GB/s")


def torch_worker(mode, threads, corpus):
    """Reads lines from standard input; for each runs a round and prints its step times in ms."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    B, T, V, D, H, L = 8, 256, 256, 384, 6, 6
    torch.manual_seed(0)

    def weight(*shape, std=0.02):
        return torch.nn.Parameter(torch.randn(*shape) * std)

    wte, wpe = weight(V, D), weight(T, D)
    layers = [dict(g1=torch.nn.Parameter(torch.ones(D)), g2=torch.nn.Parameter(torch.ones(D)), qkv=weight(3 * D, D),
                   wo=weight(D, D, std=0.02 / (2 * L) ** 0.5), w1=weight(4 * D, D),
                   w2=weight(D, 4 * D, std=0.02 / (2 * L) ** 0.5)) for _ in range(L)]
    params = [wte, wpe] + [p for l in layers for p in l.values()]
    optimizer = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def loss_of(tok, tgt):
        x = F.embedding(tok, wte) + wpe
        for l in layers:
            n = F.rms_norm(x, (D,), l["g1"], 1e-5)
            q, k, v = F.linear(n, l["qkv"]).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(a.transpose(1, 2).reshape(B, T, D), l["wo"])
            x = x + F.linear(F.gelu(F.linear(F.rms_norm(x, (D,), l["g2"], 1e-5), l["w1"]), approximate="tanh"), l["w2"])
        z = F.linear(F.rms_norm(x, (D,), None, 1e-5), wte)
        return F.cross_entropy(z.view(-1, V), tgt.reshape(-1))

    run = torch.compile(loss_of) if mode == "compiled" else loss_of
    data = torch.frombuffer(bytearray(open(corpus, "rb").read()), dtype=torch.uint8).long()
    step = 0
    print("ready", flush=True)
    for _ in sys.stdin:
        times, cpu = [], []
        for i in range(WARMUP + STEPS):
            start, busy = time.perf_counter(), time.process_time()
            window = data[(step * B * T) % (len(data) - B * T - 1):][:B * T + 1]
            loss = run(window[:-1].view(B, T), window[1:].view(B, T))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss.item()
            step += 1
            if i >= WARMUP:
                times.append(1e3 * (time.perf_counter() - start))
                cpu.append(1e3 * (time.process_time() - busy))
        print(json.dumps([times, cpu]), flush=True)


class Torch:
    def __init__(self, mode, cores, corpus):
        self.p = subprocess.Popen(["taskset", "-c", cores, sys.executable, __file__, "--worker", mode, "--corpus", corpus,
                                   "--threads", str(cores.count(",") + 1)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.p.stdout.readline().strip() == "ready"
        self.round()  # compiles

    def round(self):
        self.p.stdin.write("go\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())


def dtc_round(program, cores, folder, env=None):
    """Times of the steps, processor time per step over all ranks, and what was printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = os.path.join(folder, "log.jsonl")
    out = subprocess.run(["taskset", "-c", cores, program, "--steps", str(WARMUP + STEPS), "--data-dir", folder, "--log", log],
                         check=True, capture_output=True, text=True, env=dict(os.environ, **(env or {})))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [json.loads(line)["ms"] for line in open(log)][WARMUP:], [1e3 * busy / (WARMUP + STEPS)], out.stdout + out.stderr


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--dtc", default=os.path.join(HERE, "../../build/dtc"))
    a.add_argument("--corpus")
    a.add_argument("--cores", type=int, default=1, choices=(1, 2))
    a.add_argument("--rounds", type=int, default=7)
    a.add_argument("--worker")
    a.add_argument("--threads", type=int, default=1)
    o = a.parse_args()
    if o.worker == "ceilings":
        return ceilings(o.threads)
    if o.worker:
        return torch_worker(o.worker, o.threads, o.corpus)
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: o.cores]))
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(o.corpus), os.path.join(folder, "corpus.txt"))
        program = os.path.join(folder, "train")
        subprocess.run([o.dtc, os.path.join(HERE, "gpt.dt"), "--mesh", f"data={o.cores}", "-o", program], check=True)
        peers = {mode: Torch(mode, cores, o.corpus) for mode in ("eager", "compiled")}
        times = {"dtc": [], "eager": [], "compiled": []}
        cpu = {"dtc": [], "eager": [], "compiled": []}
        for r in range(o.rounds):
            for name, contender in [("dtc", lambda: dtc_round(program, cores, folder))] + [(m, p.round) for m, p in peers.items()]:
                ms, busy = contender()[:2]
                times[name] += ms
                cpu[name] += busy
            print(f"round {r + 1}/{o.rounds}: " + ", ".join(f"{k} {statistics.median(v):.0f} ms" for k, v in times.items()), flush=True)
        subprocess.run(["taskset", "-c", cores, sys.executable, __file__, "--worker", "ceilings", "--threads", str(o.cores)], check=True)
        print(dtc_round(program, cores, folder, {"DTRT_PROFILE": "1"})[2])
    import torch
    median = {k: statistics.median(v) for k, v in times.items()}
    best = min(("eager", "compiled"), key=lambda k: median[k])
    print(f"{o.cores} core(s), PyTorch {torch.__version__}: dtc {median['dtc']:.1f} ms, PyTorch eager {median['eager']:.1f} ms, "
          f"compiled {median['compiled']:.1f} ms")
    print(f"ratio (PyTorch's best, {best} / dtc): {median[best] / median['dtc']:.3f}")
    busy = {k: statistics.median(v) for k, v in cpu.items()}
    print(f"processor time per step: dtc {busy['dtc']:.1f} ms, PyTorch eager {busy['eager']:.1f} ms, compiled {busy['compiled']:.1f} ms; "
          f"ratio {min(busy['eager'], busy['compiled']) / busy['dtc']:.3f}")


if __name__ == "__main__":
    main()
