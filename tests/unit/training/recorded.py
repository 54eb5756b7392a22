"""CUDA graphs that are not there: work is taken down on the CPU, undone, and done at each replay.

    with graphs_on_the_cpu(monkeypatch):      captures of relive.training.capture are these
    Lent(buffer)                              a buffer whose calls can be taken down too

As on CUDA, work that is captured has no effect by that; a replay does it with the same memory and
the same numbers of the host; whoever asks for a number of the device meanwhile gets an error.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from relive.training import capture

HOST = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"}


class Recorder(TorchDispatchMode):
    """Takes down what it sees, and undoes it at its end."""

    current = None

    def __init__(self, works):
        super().__init__()
        self.works = works
        self.before = {}  # storage, or generator, to what it was

    def __enter__(self):
        Recorder.current = self
        return super().__enter__()

    def __exit__(self, *error):
        Recorder.current = None
        super().__exit__(*error)
        for thing, state in self.before.values():
            if isinstance(thing, torch.Generator):
                thing.set_state(state)
            else:
                thing.copy_(state)

    def keep(self, thing):
        """Notes what a tensor, with all of its storage, or a generator was before."""
        if isinstance(thing, torch.Generator):
            self.before.setdefault(id(thing), (thing, thing.get_state()))
            return
        storage = thing.untyped_storage()
        if storage.data_ptr() not in self.before:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.before[storage.data_ptr()] = (whole, whole.clone())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = func._schema
        if schema.name in HOST:
            raise RuntimeError(f"operation not permitted when stream is capturing: {schema.name}")
        given = dict(zip((argument.name for argument in schema.arguments), args, strict=False))
        given.update(kwargs)
        for argument in schema.arguments:
            value = given.get(argument.name)
            writes = argument.alias_info is not None and argument.alias_info.is_write
            for entry in value if isinstance(value, list | tuple) else [value]:
                if isinstance(entry, torch.Generator) or (writes and entry is not None):
                    self.keep(entry)
        outputs = func(*args, **kwargs)
        if all(result.alias_info is None for result in schema.returns):
            made = tensors(outputs)
            self.works.append(lambda: copied(made, tensors(func(*args, **kwargs))))
        elif any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
            self.works.append(lambda: func(*args, **kwargs))
        return outputs


def tensors(values):
    """The tensors among what an operation gave."""
    entries = values if isinstance(values, list | tuple) else [values]
    return [entry for entry in entries if isinstance(entry, torch.Tensor)]


def copied(made, again):
    for old, new in zip(made, again, strict=True):
        old.copy_(new)


class Listed(TorchDispatchMode):
    """Names of operations and the numbers of the host that they were given.

    Attributes:
        calls: One entry an operation.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def shown(value):
            if isinstance(value, torch.Tensor):
                return tuple(value.shape), value.dtype
            if isinstance(value, list | tuple):
                return tuple(map(shown, value))
            return type(value) if isinstance(value, torch.Generator) else value

        kwargs = kwargs or {}
        named = tuple((name, shown(value)) for name, value in sorted(kwargs.items()))
        self.calls.append((func._schema.name, shown(args), named))
        return func(*args, **kwargs)


class Graph:
    """Of `torch.cuda.CUDAGraph`, what is used."""

    def __init__(self):
        self.works, self.generators, self.replays = [], [], 0

    def register_generator_state(self, generator):
        self.generators.append(generator)

    def replay(self):
        self.replays += 1
        with torch.no_grad():
            for work in self.works:
                work()


@contextmanager
def capturing(graph, pool=None, capture_error_mode="global"):
    with Recorder(graph.works):
        yield


@contextmanager
def graphs_on_the_cpu(monkeypatch):
    """Gives the graphs that are made, in order."""
    made = []

    def new_graph():
        made.append(Graph())
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(capture, "new_graph", new_graph)
        patch.setattr(torch.cuda, "graph", capturing)
        patch.setattr(torch.cuda, "current_stream", lambda: None)
        patch.setattr(torch.cuda, "set_stream", lambda _: None)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        yield made


class Lent:
    """A buffer on the CPU, whose calls a `Recorder` takes down as they are."""

    def __init__(self, buffer, batch_size):
        self.buffer, self.batch_size = buffer, batch_size

    def __getattr__(self, name):
        return getattr(self.buffer, name)

    def __len__(self):
        return len(self.buffer)

    def __iter__(self):
        return self

    def __next__(self):
        recorder = Recorder.current
        if recorder is None:
            return self.buffer.sample(self.batch_size)
        batch = self.buffer.empty_batch(self.batch_size)
        for column in (batch.obs, batch.action, batch.reward, batch.discount, batch.weights):
            column.zero_()
        batch.next_obs.zero_()
        recorder.works.append(lambda: self.buffer.sample(self.batch_size, out=batch))
        return batch

    def batches(self, *_, **__):
        return self

    def add(self, **step):
        recorder = Recorder.current
        if recorder is None:
            self.buffer.add(**step)
        else:
            recorder.works.append(lambda: self.buffer.add(**step))

    def update_priorities(self, ids, errors):
        recorder = Recorder.current
        if recorder is None:
            self.buffer.update_priorities(ids, errors)
        else:
            recorder.works.append(lambda: self.buffer.update_priorities(ids, errors))

    def resort(self):
        recorder = Recorder.current
        if recorder is None:
            self.buffer.resort()
        else:
            recorder.works.append(self.buffer.resort)
