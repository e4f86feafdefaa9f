"""Compare another implementation with the golden files.

    python compare_model.py MODULE:FACTORY [--golden DIR] [--only logits,greedy,draft,index,records,layers] [-v]

FACTORY(checkpoint_dir) returns an object; every method below is optional and a missing one is skipped:

  logits(ids, images, positions, keep_tokens) -> array [len(positions), vocab]
        Whole-prompt forward. `ids` holds image_token_id (500) once per image, `images` the PNG paths in order;
        `positions` index the EXPANDED sequence. keep_tokens = K means truncation mode "mask" (or "compact": then only
        positions >= T - K are asked for by the caller that knows) with data_len = T; None means off.
  greedy(ids, n) -> list of n token ids            decode path, temperature 0, no speculation or lossless speculation
  draft(ids) -> (golden, tokens, confidences, logits [B, vocab] or None)     one DSpark pass after the prompt, greedy
  index_lists(ids) -> {layer: [row, ...]}          selected compressed entries per query (index source layers)
  records(ids) -> {"layers.L.record.window|compressed|index": uint8 array [entries, bytes]}
  Teacher-forced pieces, called in layer order after begin(ids), all on the same sequence; arrays are float32 holding
  bf16 values. They isolate one step each, so that errors of earlier layers cannot hide or blow up later ones:
  begin(ids)
  engram(l, X [T, m, D]) -> X                      Engram update of layer l
  collapse_norm(name, X, p [T, m]) -> x [T, D]     name = "layers.3.hc_attn" / "layers.3.hc_ffn"
  attention(l, x) -> y                             may use what earlier calls left behind (compressed KV, lists)
  selected(l) -> rows                              index list used by the attention call just made (index source layers)
  ffn(l, x) -> y
  mix(name, X, y) -> (X_out, p_out)                mHC coefficients of X, expansion of y

How to read the result
  * The network is chaotic at rounding level: one flipped FP8/FP4 code or one flipped index reaches every later token and
    settles near a floor. `noise` in golden.json is, per position, the largest logit change among the legitimate variants
    (fp32 accumulation, fused attention epilogue, other tie rule, unrounded P). Typical rms of a correct implementation
    over all golden positions is that of the variants printed below, 0.04 - 0.07; logits have standard deviation 4.
  * Layer pieces: with the default arithmetic in fp32 the relative errors are below 1e-3; the limits allow the fused
    attention epilogue and the other tie rule. Look at the numbers, not only at PASS.
  * A wrong detail that touches one layer often moves the logits by no more than 1.5 - 3 times that floor, so end-to-end
    logits alone do not clear an implementation: the layer comparison and the index lists are the sharp instruments.
  * Top-1 must agree wherever the golden margin exceeds twice the position's noise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
F = lambda a: np.asarray(a.detach().float().cpu() if hasattr(a, "detach") else a, dtype=np.float64)
rms = lambda d: float(np.sqrt(np.mean(np.square(d)))) if np.size(d) else 0.0
rel = lambda a, b: rms(a - b) / max(rms(b), 1e-30)


def load(root):
    import torch
    from safetensors.torch import load_file

    with open(os.path.join(root, "golden.json")) as f:
        J = json.load(f)
    conv = lambda d: {k: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for k, v in d.items()}
    return J, conv(load_file(os.path.join(root, "golden.safetensors"))), conv(load_file(os.path.join(root, "layers.safetensors")))


def check_logits(obj, J, T, root, verbose):
    errs, var, bad, over, n, sure, skipped = [], {k: [] for k in J["variants"]}, 0, 0, 0, 0, 0
    for i, s in enumerate(J["sequences"]):
        try:
            got = F(obj.logits(s["ids"], [os.path.join(root, f) for f in s["images"]], s["positions"], s["keep_tokens"]))
        except NotImplementedError:
            skipped += 1
            continue
        ref = F(T[f"s{i}.logits"])
        d = np.abs(got - ref).max(1)
        best = min(rms(got - F(T[f"s{i}.{k}"])) for k in J["variants"])
        margin, noise = np.array(s["margin"]), np.array(s["noise"])
        wrong = (got.argmax(1) != ref.argmax(1)) & (margin > 2 * noise)
        bad, over, n, sure = bad + wrong.sum(), over + (d > 3 * noise).sum(), n + len(d), sure + (margin > 2 * noise).sum()
        errs.append((got - ref).ravel())
        for k in var:
            var[k].append((F(T[f"s{i}.{k}"]) - ref).ravel())
        if verbose or wrong.any():
            print(f"  s{i:<2} {s['name']:<28} max abs {d.max():.4f}  rms {rms(got - ref):.4f}  rms to closest variant {best:.4f}"
                  f"  noise {noise.max():.3f}  top-1 {np.mean(got.argmax(1) == ref.argmax(1)):.3f}")  # fmt: skip
    print(f"  sequences compared {len(errs)}, skipped (NotImplementedError) {skipped}")
    mine = rms(np.concatenate(errs))
    base = {k: rms(np.concatenate(v)) for k, v in var.items()}
    print("  rms over all positions %.4f   (variants: %s)" % (mine, ", ".join(f"{k} {v:.4f}" for k, v in base.items())))
    print("  positions with error above 3 x noise: %d of %d; sure top-1 missed: %d of %d" % (over, n, bad, sure))
    worst = max(base.values())
    return "PASS" if bad == 0 and mine <= 1.15 * worst and over <= 0.05 * n else ("SUSPICIOUS" if bad == 0 and mine <= 1.6 * worst else "FAIL")


def check_greedy(obj, J):
    ok = True
    for g in J["greedy"]:
        got = list(obj.greedy(J["sequences"][g["sequence"]]["ids"], 32))
        n = next((k for k in range(32) if got[k] != g["tokens"][k]), 32)
        fine = n == 32 or g["margin"][n] < 0.5  # after a close call the texts may differ
        ok &= fine
        print(f"  prompt s{g['sequence']}: agrees for {n} tokens" + ("" if n == 32 else f", margin there {g['margin'][n]:.3f}"))
    return "PASS" if ok else "FAIL"


def check_draft(obj, J, T):
    ok = True
    for n, g in enumerate(J["drafts"]):
        y, tok, conf, lg = obj.draft(J["sequences"][g["sequence"]]["ids"])
        dc = np.abs(np.array(conf) - np.array(g["confidence"]))
        k = next((b for b in range(len(tok)) if tok[b] != g["tokens"][b]), len(tok))
        fine = y == g["golden"] and (k == len(tok) or g["margin"][k] < 4 * g["noise"][k]) and np.all(dc[: k + 1] <= 0.01 + 4 * np.array(g["confidence_noise"])[: k + 1])
        msg = "" if lg is None else f", logits max abs {np.abs(F(lg) - T[f'd{n}.logits'])[: k + 1].max():.3f} (noise {max(g['noise']):.3f})"
        print(f"  prompt s{g['sequence']}: golden {y == g['golden']}, drafts agree {k}/{len(tok)}, confidence diff {dc.max():.4f}{msg}")
        ok &= bool(fine)
    return "PASS" if ok else "FAIL"


def check_index(obj, J):
    g = J["index_lists"]
    got = obj.index_lists(J["sequences"][g["sequence"]]["ids"])
    ok = True
    for l, rows in g["layers"].items():
        mine = got.get(int(l), got.get(l))
        exact = viol = common = total = 0
        for q, r in enumerate(rows):
            a = {int(j) for j in mine[q] if j >= 0}
            exact += a == set(r["list"])
            common, total = common + len(a & set(r["list"])), total + len(r["list"])
            viol += (len(a) != len(r["list"])) or not set(r.get("must", r["list"])) <= a or not a <= set(r.get("may", r["list"]))
        print(f"  layer {l}: rows equal {exact}/{len(rows)}, outside the two-step tolerance {viol}, common entries {common / max(total, 1):.4f}")
        ok &= common >= 0.88 * total  # free-running: entries near the cut move with the activations (variants: 0.92 - 1)
    return "PASS" if ok else "FAIL"


def check_records(obj, J, L):
    got, ok = obj.records(J["sequences"][J["cache_records"]["sequence"]]["ids"]), True
    for k in sorted(k for k in L if ".record." in k):
        if k in got:
            a, b = np.asarray(got[k]), L[k]
            same = a.shape == b.shape and float(np.mean(a == b))
            print(f"  {k}: bytes equal {same if same is False else round(same, 4)}")
            ok &= bool(same) and same > (0.999 if k.startswith("layers.0.") else 0.55)  # free-running, variants: 0.60 - 1
    return "PASS" if ok else "FAIL"


def check_layers(obj, J, L, verbose):
    obj.begin(J["sequences"][J["index_lists"]["sequence"]]["ids"])
    names = sorted({k.rsplit(".", 1)[0] for k in L if k.endswith(".X_in") and "hc_" in k}, key=lambda n: (int(n.split(".")[1]), "ffn" in n))
    worst: dict[str, float] = {}
    bad_lists = 0

    def note(kind, name, a, b, limit):
        e = rel(F(a), F(b))
        worst[kind] = max(worst.get(kind, 0.0), e / limit)
        if verbose or e > limit:
            print(f"  {'BAD ' if e > limit else ''}{kind:<13} {name:<18} relative rms error {e:.2e} (limit {limit:.0e})")

    for name in names:
        l = int(name.split(".")[1])
        g = lambda s: L[f"{name}.{s}"]
        if f"layers.{l}.engram.X_in" in L and "attn" in name and hasattr(obj, "engram"):
            note("engram", name, obj.engram(l, L[f"layers.{l}.engram.X_in"]), g("X_in"), 2e-3)
        if hasattr(obj, "collapse_norm"):
            note("collapse_norm", name, obj.collapse_norm(name, g("X_in"), g("p_in")), g("x"), 2e-3)
        if "attn" in name and hasattr(obj, "attention"):
            note("attention", name, obj.attention(l, g("x")), g("y"), 8e-2)
            rows = J["index_lists"]["layers"].get(str(l))
            if rows and hasattr(obj, "selected"):
                mine = [{int(j) for j in r if j >= 0} for r in obj.selected(l)]
                viol = sum(
                    len(a) != len(r["list"]) or not set(r.get("must", r["list"])) <= a or not a <= set(r.get("may", r["list"]))
                    for a, r in zip(mine, rows)
                )
                print(f"  selected      layer {l}: rows equal {sum(a == set(r['list']) for a, r in zip(mine, rows))}/{len(rows)}, violations {viol}")
                bad_lists += viol
        if "ffn" in name and hasattr(obj, "ffn"):
            note("ffn", name, obj.ffn(l, g("x")), g("y"), 3e-2)
        if hasattr(obj, "mix"):
            X, p = obj.mix(name, g("X_in"), g("y"))
            note("mix X", name, X, g("X_out"), 2e-3)
            note("mix p", name, p, g("p_out"), 1e-4)
    print("  worst error / limit: " + ", ".join(f"{k} {v:.2f}" for k, v in worst.items()))
    return "PASS" if all(v <= 1 for v in worst.values()) and bad_lists <= 12 else "FAIL"


def run(obj, root, only, verbose=False):
    J, T, L = load(root)
    res = {}
    for key, need, f in (
        ("logits", "logits", lambda: check_logits(obj, J, T, root, verbose)), ("greedy", "greedy", lambda: check_greedy(obj, J)),
        ("draft", "draft", lambda: check_draft(obj, J, T)), ("index", "index_lists", lambda: check_index(obj, J)),
        ("records", "records", lambda: check_records(obj, J, L)), ("layers", "begin", lambda: check_layers(obj, J, L, verbose)),
    ):  # fmt: skip
        if key in only and hasattr(obj, need):
            print(key)
            res[key] = f()
            print("  ->", res[key])
    return res


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    ap = argparse.ArgumentParser()
    ap.add_argument("target")
    ap.add_argument("--golden", default=os.path.join(HERE))
    ap.add_argument("--only", default="logits,greedy,draft,index,records,layers")
    ap.add_argument("-v", action="store_true")
    a = ap.parse_args()
    mod, _, name = a.target.partition(":")
    ck = os.path.join(a.golden, "checkpoint")
    sys.path.insert(0, os.getcwd())
    obj = getattr(importlib.import_module(mod), name)(ck)
    res = run(obj, a.golden, a.only.split(","), a.v)
    print("RESULT", res)
    sys.exit(0 if all(v == "PASS" for v in res.values()) else 1)
