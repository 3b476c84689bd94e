#!/usr/bin/python3
"""Trains the model for a given wall-clock time, with checkpoints.

On CPUs several one-threaded workers share the parameters: each computes the gradient of a batch of its own and applies
it under a lock, so that a worker whose core is busy with something else holds nobody up. On a GPU (gpu.py) the workers make
the batches.
"""
import argparse
import os
import time

# Large tensors come and go all the time: without these, each is mapped and zeroed anew by the kernel.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "8000000000", "MALLOC_TRIM_THRESHOLD_": "16000000000", "MALLOC_TOP_PAD_": "100000000"}

import torch
import torch.nn.functional as F

import documents
import gpu
import initial
import packed
import samples
import tasks
from chat import Chat
from model import Batch, Config, Llama
from optimizer import Adam, Muon



def tensors(group):
    """The samples as a batch; the flat places that predict, what they predict, with what weight, and is it an answer."""
    starts = [0]
    for sample in group:
        starts.append(starts[-1] + len(sample))
    padding = -starts[-1] % 32
    flat = lambda name, kind: torch.tensor([x for s in group for x in getattr(s, name)] + [0] * padding, dtype=kind)
    ids = flat("ids", torch.int64)
    batch = Batch(ids, flat("positions", torch.int64), flat("branches", torch.int64), starts)
    weights = flat("weights", torch.float32)
    places = weights.nonzero()[:, 0]
    places = F.pad(places, (0, -len(places) % 32))  # the place 0 is no sample's answer: its weight stays 0
    return batch, (places - 1).clamp(min=0), ids[places], weights[places], flat("kinds", torch.bool)[places]


class Texts:
    """A training document as token ids, for the first word vectors."""

    def __init__(self, chat):
        self.chat = chat

    def __call__(self, document):
        return self.chat.encode("Package: {package}\n{section}\n{synopsis}\n{description}".format(**document))


def save(path, model, **more):
    torch.save({"config": model.config.as_dict(), "model": model.state_dict(), **more}, path + ".new")
    os.replace(path + ".new", path)


def work(rank, options, model, optimizers, lock, progress):
    """progress holds the steps, the tokens and the second at which the training began."""
    torch.set_num_threads(options.threads)
    training, _ = documents.load(options.documents)
    tasks.statistics = tasks.Statistics(training)
    chat = Chat(options.vocabulary)
    began = progress[2].item()
    saved = logged = time.time()
    losses = []
    for group in samples.batches(training, chat, options.tokens or 4096, options.seed * 2000 + rank):
        batch, where, targets, weights, answers = tensors(group)
        loss, each = model(batch, where, targets, weights / weights.sum())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        losses.append([(each[chosen].sum().item(), chosen.sum().item()) for chosen in (answers, ~answers & (weights > 0))])
        done = (time.time() - began) / (60 * options.minutes)
        with lock:
            factor = min((progress[0].item() + 1) / options.warm_up, 1) * min(max(1 - done, 0) / options.fall, 1)
            for optimizer in optimizers:
                optimizer.step(factor)
            progress[0] += 1
            progress[1] += sum(map(len, group))
        for p in model.parameters():
            p.grad = None
        now = time.time()
        if rank == 0 and now - logged > 20:
            steps, tokens = int(progress[0]), int(progress[1])
            answer, text = (sum(total for total, _ in kind) / max(sum(n for _, n in kind), 1) for kind in zip(*losses))
            speed = f"{tokens / 1e6:.2f}M tokens, {tokens / (now - began):.0f}/s"
            print(f"step {steps}, {speed}, {100 * done:.1f}% done, loss {answer:.3f} of answers, {text:.3f} of text", flush=True)
            logged, losses = now, []
        if rank == 0 and now - saved > options.save_every:
            with lock:
                save(options.output, model, steps=int(progress[0]), tokens=int(progress[1]))
            saved = now
        if done >= 1:
            break


def train_on_cpus(options, model):
    optimizers = [
        Muon(model.layers.parameters(), options.muon_rate, decay=options.decay),
        Adam([model.embedding, model.final_gain], options.adam_rate),
    ]
    progress = torch.tensor([0.0, 0.0, time.time()], dtype=torch.float64)
    context = torch.multiprocessing.get_context("spawn")
    lock = context.Lock()
    if options.workers == 1:
        work(0, options, model, optimizers, lock, progress)
    else:
        os.environ.update(MALLOC, OMP_NUM_THREADS=str(options.threads))
        model.share_memory()
        for tensor in [progress] + [t for optimizer in optimizers for t in optimizer.state()]:
            tensor.share_memory_()
        processes = [context.Process(target=work, args=(rank, options, model, optimizers, lock, progress)) for rank in range(options.workers)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    save(options.output, model, steps=int(progress[0]), tokens=int(progress[1]))


def main():
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents")
    parser.add_argument("vocabulary")
    parser.add_argument("output", help="the checkpoint to write")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--threads", type=int, default=1, help="of each worker on CPUs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--packed", action="store_true", help="train on the CPU as on a GPU, to test that")
    parser.add_argument("--compile", action="store_true", help="with --packed: compile as on a GPU")
    parser.add_argument("--tokens", type=int, help="of a batch; 4096, on a GPU 65536")
    parser.add_argument("--adam-rate", type=float, default=0.003)
    parser.add_argument("--muon-rate", type=float, default=0.004)
    parser.add_argument("--decay", type=float, default=0.01, help="of the matrices' weights, at each step by so much of the rate")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--warm-up", type=int, default=50, help="steps")
    parser.add_argument("--fall", type=float, default=0.5, help="of the time, at the end, in which the rates fall to nothing")
    for name, default in Config(vocabulary=0).as_dict().items():
        if name != "vocabulary":
            parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    parser.add_argument("--log-every", type=float, default=20, help="seconds")
    parser.add_argument("--save-every", type=float, default=120, help="seconds")
    parser.add_argument("--resume", help="a checkpoint to start from")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    chat = Chat(options.vocabulary)
    training, held_out = documents.load(options.documents)
    tasks.statistics = tasks.Statistics(training)
    on_gpu = options.device != "cpu" or options.packed
    if on_gpu:
        layout = packed.Layout(options.tokens or 65536)
        encoded = None if options.resume else gpu.initial_texts(Texts(chat), training, options.workers)
        producers = packed.Producers(training, chat, layout, options.workers, options.seed)
    elif not options.resume:
        encoded = [Texts(chat)(d) for d in training]
    shape = {name: getattr(options, name) for name in Config().as_dict() if name != "vocabulary"}
    model = Llama(Config(vocabulary=len(chat), **shape), options.dropout)
    if options.resume:
        model.load_state_dict(torch.load(options.resume, map_location="cpu")["model"])
    else:
        initial.prepare(model, encoded, options.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters, {len(training)} documents", flush=True)
    if on_gpu:
        model.to(options.device)
        keep = lambda steps, tokens: save(options.output, model, steps=steps, tokens=tokens)
        gpu.work(options, model, training, held_out, chat, producers, layout, began, keep)
        producers.stop()
    else:
        train_on_cpus(options, model)


if __name__ == "__main__":
    main()
