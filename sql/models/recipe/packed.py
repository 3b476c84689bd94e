"""Samples packed into rows of fixed lengths: every batch has the same shapes, as a GPU likes it, and processes of their own make them."""
import mmap
import multiprocessing
import signal
import time

import numpy

import samples

POOL = 1.1  # batches' worth of samples to choose from: the longest first, the shortest fill what is left
FIELDS = ("ids", "positions", "owners", "branches")  # of each token; an owner is a sample's number in the batch, 0 of padding
PLACES = ("places", "weights", "kinds")  # of each token that is predicted; weights are 32-bit floats


class Layout:
    """So many rows of such a length, one kind after the other, and a limit for the tokens that are predicted."""

    def __init__(self, tokens, long_row=1024, short_row=256, long_share=0.25, place_share=0.3):
        long_rows = max(round(tokens * long_share / long_row), 1)
        self.rows = (((tokens - long_rows * long_row) // short_row, short_row), (long_rows, long_row))
        self.tokens = sum(count * length for count, length in self.rows)
        self.places = int(tokens * place_share) // 32 * 32
        self.lengths = numpy.concatenate([numpy.full(count, length) for count, length in self.rows])
        self.starts = numpy.concatenate(([0], self.lengths.cumsum()[:-1]))
        self.numbers = len(FIELDS) * self.tokens + len(PLACES) * self.places

    def views(self, numbers):
        """The parts of a batch, which is one array or tensor of 32-bit numbers, by name."""
        bounds = [0]
        for size in [self.tokens] * len(FIELDS) + [self.places] * len(PLACES):
            bounds.append(bounds[-1] + size)
        return {name: numbers[a:b] for name, a, b in zip(FIELDS + PLACES, bounds, bounds[1:])}


def fill(numbers, layout, pool):
    """Packs samples of the pool into the batch; returns those that found no room."""
    numbers[:] = 0
    parts = layout.views(numbers)
    room, used, left, longest = layout.lengths.copy(), 0, [], layout.lengths.max()
    weights = numpy.zeros(layout.tokens, numpy.float32)
    kinds = numpy.zeros(layout.tokens, numpy.int32)
    for sample in sorted(pool, key=len, reverse=True):
        size = len(sample)
        row = numpy.where(room >= size, room, longest + 1).argmin()
        if room[row] < size:
            if size <= longest:
                left.append(sample)
            continue
        used += 1
        first = layout.starts[row] + layout.lengths[row] - room[row]
        room[row] -= size
        parts["ids"][first : first + size] = sample.ids
        parts["positions"][first : first + size] = sample.positions
        parts["branches"][first : first + size] = sample.branches
        parts["owners"][first : first + size] = used
        weights[first : first + size] = sample.weights
        kinds[first : first + size] = sample.kinds
    places = numpy.flatnonzero(weights)
    if len(places) > layout.places:  # text is what there is too much of
        order = numpy.argsort(kinds[places] == 0, kind="stable")
        places = numpy.sort(places[order[: layout.places]])
    parts["places"][:] = 1  # a place that fills up has no weight
    parts["places"][: len(places)] = places
    parts["weights"].view(numpy.float32)[: len(places)] = weights[places]
    parts["kinds"][: len(places)] = kinds[places]
    return left


def batches(training, chat, layout, seed):
    """Yields arrays for ever; the same one each time, written anew."""
    stream = samples.stream(training, chat, seed)
    pool, numbers = [], numpy.empty(layout.numbers, numpy.int32)
    while True:
        size = sum(map(len, pool))
        while size < POOL * layout.tokens:
            pool.append(next(stream))
            size += len(pool[-1])
        pool = fill(numbers, layout, pool)
        yield numbers


class Producers:
    """Processes that make batches into shared memory. To be started before the GPU is first used."""

    def __init__(self, training, chat, layout, workers, seed):
        context = multiprocessing.get_context("fork")
        slots = 3 * workers
        shared = mmap.mmap(-1, 4 * slots * layout.numbers)
        self.slots = numpy.frombuffer(shared, numpy.int32).reshape(slots, layout.numbers)
        self.free, self.ready = context.SimpleQueue(), context.SimpleQueue()
        for slot in range(slots):
            self.free.put(slot)
        arguments = [(training, chat, layout, seed * 1000 + worker) for worker in range(workers)]
        self.processes = [context.Process(target=self.produce, args=each, daemon=True) for each in arguments]
        for process in self.processes:
            process.start()

    def produce(self, training, chat, layout, seed):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        began, made = time.time(), 0
        for numbers in batches(training, chat, layout, seed):
            made += 1
            if made == 3 and seed % 1000 == 0:
                owners = layout.views(numbers)["owners"]
                speed = made * layout.tokens / (time.time() - began)
                print(f"a worker makes {speed:.0f} tokens/s; {100 * (owners > 0).mean():.1f}% of a batch are samples", flush=True)
            slot = self.free.get()
            self.slots[slot] = numbers
            self.ready.put(slot)

    def take(self, out):
        """Copies the next batch."""
        slot = self.ready.get()
        out[:] = self.slots[slot]
        self.free.put(slot)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
