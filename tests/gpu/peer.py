"""peer.py: a training step of GPT-2 124M in PyTorch, as tests/bench/gpt2.dt says it, in f32: a line {"ms": ..., "torch": "2.9"} for
eager PyTorch, and one for compiled, which may take a minute to come.

  python3 tests/gpu/peer.py BATCH CONTEXT [--tf32]

Fused attention and fused AdamW.
"""
import json, statistics, sys, time

import torch
import torch.nn.functional as F

B, T = int(sys.argv[1]), int(sys.argv[2])
V, D, H, L = 50257, 768, 12, 12
torch.backends.cuda.matmul.allow_tf32 = "--tf32" in sys.argv
torch.manual_seed(0)


def weight(*shape, std=0.02):
    return torch.nn.Parameter(torch.randn(*shape, device="cuda") * std)


def vector(n, value=0.0):
    return torch.nn.Parameter(torch.full((n,), value, device="cuda"))


wte, wpe = weight(V, D), weight(T, D)
layers = [dict(g1=vector(D, 1.0), b1=vector(D), g2=vector(D, 1.0), b2=vector(D), qkv=weight(3 * D, D), bqkv=vector(3 * D),
               wo=weight(D, D, std=0.02 / (2 * L) ** 0.5), bo=vector(D), w1=weight(4 * D, D), c1=vector(4 * D),
               w2=weight(D, 4 * D, std=0.02 / (2 * L) ** 0.5), c2=vector(D)) for _ in range(L)]
params = [wte, wpe] + [p for l in layers for p in l.values()]
optimizer = torch.optim.AdamW(params, lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def loss_of(tok, tgt):
    x = F.embedding(tok, wte) + wpe
    for l in layers:
        n = F.layer_norm(x, (D,), l["g1"], l["b1"])
        q, k, v = F.linear(n, l["qkv"], l["bqkv"]).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(B, T, D), l["wo"], l["bo"])
        m = F.gelu(F.linear(F.layer_norm(x, (D,), l["g2"], l["b2"]), l["w1"], l["c1"]), approximate="tanh")
        x = x + F.linear(m, l["w2"], l["c2"])
    z = F.linear(F.layer_norm(x, (D,)), wte)
    return F.cross_entropy(z.view(-1, V), tgt.reshape(-1))


def median_ms(run, steps=12, warmup=4):
    times = []
    for i in range(steps):
        tok = torch.randint(0, V, (B, T + 1), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = run(tok[:, :-1], tok[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        loss.item()
        if i >= warmup:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def say(ms):
    print(json.dumps({"ms": round(ms, 2), "torch": torch.__version__}), flush=True)


say(median_ms(loss_of))
try:
    say(median_ms(torch.compile(loss_of)))
except Exception as e:  # no compiler for it here
    print(f"peer.py: compiled PyTorch is left out: {e}".splitlines()[0], file=sys.stderr)
