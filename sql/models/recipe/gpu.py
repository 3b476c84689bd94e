"""Training on a GPU: batches of fixed shapes, a compiled step, an average of the weights; train.py calls it for a device that is none of the CPU."""
import contextlib
import random
import time

import torch

import packed
import samples
from model import PackedBatch, masks
from optimizer import Adam, Muon

AVERAGE = 0.998  # what the average keeps at each step
HELD_OUT_SEED = 1


def initial_texts(encode, documents, workers):
    """The documents as token ids, made by several processes."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return pool.map(encode, documents, chunksize=500)


def step_function(model, layout):
    """From the parts of a batch to the loss, and the loss of each place."""

    def run(ids, positions, owners, branches, places, shares):
        with torch.no_grad():
            seen = masks(owners, branches, layout.rows)
        batch = PackedBatch(ids, positions, layout.rows, seen)
        return model(batch, places - 1, ids[places], shares)

    return run


def compiled(step):
    """The step compiled, or as it is where there is no compiler."""
    fast = torch.compile(step, dynamic=False)

    def run(*arguments):
        nonlocal fast
        try:
            return fast(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            print(f"not compiled: {str(error)[-600:]}", flush=True)
            fast = step
            return step(*arguments)

    return run


class Feed:
    """The next batch is copied while the GPU works on this one."""

    def __init__(self, producers, layout, device):
        self.producers, self.layout, self.device = producers, layout, torch.device(device)
        self.cuda = self.device.type == "cuda"
        self.staging = [torch.empty(layout.numbers, dtype=torch.int32, pin_memory=self.cuda) for _ in range(3)]
        self.events = [torch.cuda.Event() if self.cuda else None for _ in self.staging]
        self.turn = 0

    def take(self):
        staged, event = self.staging[self.turn], self.events[self.turn]
        self.turn = (self.turn + 1) % len(self.staging)
        if event:
            event.synchronize()
        self.producers.take(staged.numpy())
        numbers = staged.to(self.device, non_blocking=True)
        if event:
            event.record()
        return unpacked(numbers, self.layout)


def unpacked(numbers, layout):
    """(the arguments of the step, the kinds of the places)."""
    parts = layout.views(numbers)
    whole = lambda name: parts[name].long()
    weights = parts["weights"].view(torch.float32)
    return [whole("ids"), whole("positions"), parts["owners"], parts["branches"], whole("places"), weights / weights.sum()], parts["kinds"]


class Losses:
    """Means of the losses by kind of what is predicted, summed up on the device."""

    def __init__(self, device):
        self.sums = torch.zeros(2, len(samples.KINDS), device=device)

    def add(self, each, kinds, shares):
        chosen = (shares > 0).float()
        self.sums[0].index_add_(0, kinds, each.float() * chosen)
        self.sums[1].index_add_(0, kinds, chosen)

    def text(self):
        total, count = self.sums.tolist()
        self.sums.zero_()
        return " ".join(f"{kind} {t / n:.3f}" for kind, t, n in zip(samples.KINDS, total, count) if n)


def held_out_batches(held_out, chat, layout, count, device):
    made = packed.batches(held_out, chat, layout, HELD_OUT_SEED)
    return [unpacked(torch.from_numpy(next(made).copy()).to(device), layout) for _ in range(count)]


@contextlib.contextmanager
def averaged(model, average):
    """The model with the averaged weights in place of its own."""
    own = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, mean in zip(model.parameters(), average):
            p.copy_(mean)
        yield
        for p, kept in zip(model.parameters(), own):
            p.copy_(kept)


def work(options, model, training, held_out, chat, producers, layout, began, save):
    """Trains until so many minutes after `began`; save(steps, tokens) is called with the averaged weights in the model."""
    device = options.device
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        for other in ("flash", "cudnn", "math"):  # they know no masks, or are slow
            getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    optimizers = [Muon(model.layers.parameters(), options.muon_rate, decay=options.decay), Adam([model.embedding, model.final_gain], options.adam_rate)]
    average = [p.detach().clone() for p in model.parameters()]
    plain = step_function(model, layout)
    step = compiled(plain) if device == "cuda" or options.compile else plain
    watched = held_out_batches(held_out, chat, layout, 2, device)
    feed, losses, judged = Feed(producers, layout, device), Losses(device), Losses(device)
    steps, counted, first = 0, 0, None
    saved = logged = time.time()
    waited = 0
    while True:
        asked = time.time()
        arguments, kinds = feed.take()
        waited += time.time() - asked
        loss, each = step(*arguments)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        now = time.time()
        if first is None:  # what compiling took does not count as training
            first = logged = now
            waited = 0
            print(f"the first step ended after {now - began:.1f} s", flush=True)
        done = (now - first) / max(began + 60 * options.minutes - first, 1)
        factor = min((steps + 1) / options.warm_up, 1) * min(max(1 - done, 0) / options.fall, 1)
        optimizers[0].step_stacked(factor)
        optimizers[1].step(factor)
        model.zero_grad(set_to_none=True)
        steps += 1
        with torch.no_grad():
            keep = min(AVERAGE, steps / (steps + 10))
            for p, mean in zip(model.parameters(), average):
                mean.lerp_(p, 1 - keep)
        losses.add(each, kinds, arguments[-1])
        if now - logged > options.log_every or done >= 1:
            text = losses.text()  # waits for the GPU
            model.eval()
            with averaged(model, average):
                for each_arguments, each_kinds in watched:
                    judged.add(plain(*each_arguments)[1], each_kinds, each_arguments[-1])
                if now - saved > options.save_every or done >= 1:
                    save(steps, steps * layout.tokens)
                    saved = now
            model.train()
            now = time.time()
            speed = (steps - counted) * layout.tokens / (now - logged)
            print(
                f"step {steps}, {steps * layout.tokens / 1e6:.1f}M tokens, {speed / 1e6:.3f}M/s, waited {100 * waited / (now - logged):.0f}%, "
                f"{100 * done:.1f}% done | {text} | held out: {judged.text()}",
                flush=True,
            )
            logged, counted, waited = now, steps, 0
        if done >= 1:
            break
