"""The network before its first step: what few tokens can teach it late, or not at all, is put in from the start.

Embeddings begin as word vectors, from how often pieces stand near each other in the training text. The first two layers
begin with an induction head: in the first a head writes the identity of the token before into dimensions of its own, in the
second, heads look for places where that is the current token, and copy what stands there. So the network can repeat a text
from the first step, and learns when to do so. Everything else starts as usual, with outputs of zero.
"""
import torch

PREVIOUS = 64  # dimensions for the identity of the token before; embeddings begin with zeros there
NORM = 4.2  # of an embedding's own part, and as much again that all have in common
GAIN = 0.2  # makes the first logits small
WINDOW = 8
FREQUENCIES = 6  # the fastest rotations tell the distance of one
SLOW = 12  # pairs of the slowest rotations, which hardly turn within a text, carry the comparison


def nearby(sequences, vocabulary, device):
    """(vocabulary, vocabulary): positive pointwise mutual information of pieces within a window, nearer ones counting more."""
    counts = torch.zeros(vocabulary * vocabulary, device=device)
    tokens = torch.tensor([t for s in sequences for t in [*s, *[-1] * WINDOW]], device=device)
    for distance in range(1, WINDOW + 1):
        a, b = tokens[:-distance], tokens[distance:]
        both = (a >= 0) & (b >= 0)
        counts.index_add_(0, a[both] * vocabulary + b[both], torch.full((int(both.sum()),), 1 / distance, device=device))
    counts = counts.view(vocabulary, vocabulary)
    counts += counts.t().clone()
    single = counts.sum(0).clamp(min=1)
    return (counts * single.sum() / single.unsqueeze(1) / (single.pow(0.75) * single.pow(0.25).mean())).clamp(min=1).log_()


def word_vectors(sequences, vocabulary, size, device):
    """The main directions of `nearby`, by subspace iteration; rows of one length."""
    matrix = nearby(sequences, vocabulary, device)
    basis = torch.randn(vocabulary, size, device=device)
    for _ in range(4):
        basis, _ = torch.linalg.qr(matrix @ (matrix.t() @ basis))
    found = matrix @ basis
    values, directions = torch.linalg.eigh(found.t() @ found)
    vectors = (found @ directions / values.clamp(min=1e-6).pow(0.25)).cpu()
    vectors += vectors.std() * 0.3 * torch.randn_like(vectors)  # rare pieces need an identity too
    vectors -= vectors.mean(0)
    return vectors @ torch.linalg.qr(torch.randn(size, size))[0] / vectors.norm(dim=1, keepdim=True)


def orthonormal(rows, columns):
    return torch.linalg.qr(torch.randn(columns, rows))[0].t()


@torch.no_grad()
def prepare(model, sequences, device="cpu"):
    """For a model on the CPU; `device` is where the word vectors are computed."""
    c = model.config
    own = c.hidden - PREVIOUS - 1  # the dimension after them is what all have in common
    common = own
    model.embedding.zero_()
    model.embedding[:, :own] = NORM * word_vectors(sequences, c.vocabulary, own, device)
    model.embedding[:, common] = NORM
    model.final_gain.fill_(GAIN)
    for layer in model.layers:
        layer.attn_output.zero_()
        layer.down.zero_()

    size, group = c.head_size, c.heads // c.kv_heads
    keys, values = c.heads * size, (c.heads + c.kv_heads) * size
    theta = c.rope_base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    identity = orthonormal(PREVIOUS, own)
    seen = (c.hidden / 2) ** 0.5  # the length that the norm gives either half of an embedding

    first = model.layers[0]
    score = (15 * size**0.5) ** 0.5 / seen
    first.qkv[: group * size] = 0
    first.qkv[keys : keys + size] = 0
    for head in range(group):  # the heads of a group look one and two tokens back
        for i in range(FREQUENCIES):
            angle = theta[i] * (head + 1)
            first.qkv[head * size + i, common] = score * angle.cos()
            first.qkv[head * size + size // 2 + i, common] = -score * angle.sin()
    first.qkv[keys : keys + FREQUENCIES, common] = score
    first.qkv[values : values + size] = 0
    first.qkv[values : values + size, :own] = identity
    length = seen * (PREVIOUS / own) ** 0.5  # of what the head carries
    first.attn_output[c.hidden - PREVIOUS :, :size] = torch.eye(PREVIOUS, size) * 3 / length

    second = model.layers[1]
    total = (2 * NORM**2 + 3**2) ** 0.5 / c.hidden**0.5
    query, key = NORM * (2 * SLOW / own) ** 0.5 / total, 3 * (2 * SLOW / PREVIOUS) ** 0.5 / total
    score = (14 * size**0.5 / query / key) ** 0.5
    copied = orthonormal(c.kv_heads * size, own)
    rows = [*range(size // 2 - SLOW, size // 2), *range(size - SLOW, size)]
    for g in range(c.kv_heads):
        head, k, v = g * group * size, keys + g * size, values + g * size
        second.qkv[head : head + size] = 0
        second.qkv[k : k + size] = 0
        for n, row in enumerate(rows):
            second.qkv[head + row, :own] = score * identity[g * 2 * SLOW + n]
            second.qkv[k + row, c.hidden - PREVIOUS + g * 2 * SLOW + n] = score
        second.qkv[v : v + size] = 0
        second.qkv[v : v + size, :own] = copied[g * size : (g + 1) * size]
        second.attn_output[:own, head : head + size] = 0.25 * copied[g * size : (g + 1) * size].t()
