"""Greedy answers of a checkpoint, many prompts at a time, with a cache of keys and values."""
import torch
import torch.nn.functional as F

from model import Config, Llama, norm, rotate


def load(path):
    checkpoint = torch.load(path, map_location="cpu")
    model = Llama(Config(**checkpoint["config"]))
    model.load_state_dict(checkpoint["model"])
    return model.eval()


def advance(model, ids, positions, mask, cache, kind):
    """Runs the new tokens after those in the cache; returns the logits of the last one."""
    c = model.config
    batch, length = ids.shape
    x = F.embedding(ids, model.embedding).to(kind)
    cosine, sine = (table[positions].unsqueeze(2).to(kind) for table in (model.cosine, model.sine))
    for i, layer in enumerate(model.layers):
        qkv = F.linear(norm(x, c.epsilon), layer.qkv.to(kind)).view(batch, length, -1, c.head_size)
        qk = rotate(qkv[:, :, : c.heads + c.kv_heads], cosine, sine)
        k, v = qk[:, :, c.heads :].transpose(1, 2), qkv[:, :, c.heads + c.kv_heads :].transpose(1, 2)
        if i < len(cache):
            k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
            cache[i] = k, v
        else:
            cache.append((k, v))
        group = c.heads // c.kv_heads
        q = qk[:, :, : c.heads].transpose(1, 2)
        scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * c.head_size**-0.5
        weights = F.softmax(scores + mask, -1)
        mixed = (weights @ v.repeat_interleave(group, 1)).transpose(1, 2).reshape(batch, length, -1)
        x = x + F.linear(mixed, layer.attn_output.to(kind))
        h = norm(x, c.epsilon)
        x = x + F.linear(F.silu(F.linear(h, layer.gate.to(kind))) * F.linear(h, layer.up.to(kind)), layer.down.to(kind))
    return F.linear(norm(x[:, -1], c.epsilon).float(), model.head())


@torch.no_grad()
def answer_batch(model, prompts, end, limit, kind):
    """prompts are lists of ids; the shorter ones are padded on the left."""
    batch, length = len(prompts), max(map(len, prompts))
    lowest = -1e4
    device = model.embedding.device
    padding = torch.tensor([length - len(p) for p in prompts], device=device)
    ids = torch.tensor([[0] * (length - len(p)) + p for p in prompts], device=device)
    columns = torch.arange(length, device=device)
    positions = (columns - padding.unsqueeze(1)).clamp(min=0)
    hidden = (columns < padding.unsqueeze(1))[:, None, None, :] | (columns[None, :] > columns[:, None])[None, None]
    mask = torch.zeros(batch, 1, length, length, dtype=kind, device=device).masked_fill_(hidden, lowest)
    step_mask = torch.zeros(batch, 1, 1, length, dtype=kind, device=device).masked_fill_((columns < padding.unsqueeze(1))[:, None, None, :], lowest)
    cache, answers, open_rows = [], [[] for _ in prompts], set(range(batch))
    for step in range(limit):
        chosen = advance(model, ids, positions, mask, cache, kind).argmax(-1)
        tokens = chosen.tolist()
        for row in list(open_rows):
            open_rows.discard(row) if tokens[row] == end else answers[row].append(tokens[row])
        if not open_rows:
            break
        ids, positions = chosen.unsqueeze(1), (length - padding + step).unsqueeze(1)
        step_mask = F.pad(step_mask, (0, 1))
        mask = step_mask
    return answers


def answers(model, chat, prompts, limit=48, batch=64, kind=torch.bfloat16):
    """The answers to (system, user) pairs, in order. The model is where it is to run."""
    encoded = [chat.prompt(system, user) for system, user in prompts]
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
    out = [None] * len(encoded)
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        for row, ids in zip(rows, answer_batch(model, [encoded[r] for r in rows], chat.end, limit, kind)):
            out[row] = chat.decode(ids)
    return out
