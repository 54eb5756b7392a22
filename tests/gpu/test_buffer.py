"""What a buffer on a CUDA device does beyond the checks of the benchmark."""

import threading

import numpy as np
import pytest
import torch

from benchmarks.gpu.same import require_same_batch, require_same_state
from benchmarks.gpu.workload import PER, STATES, W1, errors, full, one_time, steps
from relive import (
    ConfigError,
    Field,
    Hindsight,
    InputError,
    RankBased,
    ReplayBuffer,
    UnsupportedError,
    frames,
)
from relive.training.capture import WARM_UP, Graphs
from tests.triton import stacks
from tests.triton.lives import SPECS, live
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there

CPU = torch.device("cpu")
KINDS = ["same step", "ranks in a window", "sweeps and demonstrations", "rows on the host"]


@pytest.fixture
def cuda():
    return torch.device("cuda")


@pytest.mark.parametrize("name", SPECS)
def test_random_calls_give_the_bits_of_the_cpu(place, name, tmp_path):
    if place.calls < 100 and name not in KINDS:
        pytest.skip("on the pretended device tests/triton runs the other kinds")
    live(name, place.device, tmp_path, place.calls)


@pytest.mark.parametrize("name", [*stacks.SPECS, *stacks.DROPPING])
def test_frames_kept_once_give_the_bits_of_the_cpu(place, name, monkeypatch):
    if place.calls < 100 and name != "same step":
        pytest.skip("on the pretended device tests/triton runs the other kinds")
    spec = {**stacks.SPECS, **stacks.DROPPING}[name]
    monkeypatch.setattr(frames, "STEPS_AT_ONCE", spec.at_once)
    stacks.Life(spec, place.device, len(name)).live(place.calls)


@pytest.mark.parametrize("name", ["fakes", "same step"])
def test_frames_kept_once_are_captured(place, name, monkeypatch):
    spec = stacks.SPECS[name]
    monkeypatch.setattr(frames, "STEPS_AT_ONCE", spec.at_once)
    life = stacks.Life(spec, place.device, 1)
    lanes = range(spec.num_envs)
    life.write("extend", life.steps.extend(lanes, 9), env=None)
    static, batch = life.there(life.steps.add()), life.gpu.empty_batch(4)
    given = life.steps.add()
    stacks.copy_into(static, life.there(given))
    life.cpu.add(**given)
    life.cpu.sample(4)
    life.gpu.add(**static)  # compiles
    life.gpu.sample(4, out=batch)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        life.gpu.add(**static)
        life.gpu.sample(4, out=batch)
    for _ in range(5):
        given = life.steps.add()
        stacks.copy_into(static, life.there(given))
        graph.replay()
        life.cpu.add(**given)
        assert_same_batch_there(place.device, batch, life.cpu.sample(4))
    assert_same_buffer_there(place.device, life.gpu, life.cpu)


@pytest.mark.parametrize("n_step", [1, 3])
def test_hindsight_gives_the_bits_of_the_cpu(place, cuda, n_step):
    seen, goal = Field((3,)), Field((2,))
    fields = {
        "obs": {"observation": seen, "achieved_goal": goal, "desired_goal": goal},
        "action": Field(),
    }
    ours, theirs = (
        Hindsight(
            ReplayBuffer(
                40,
                fields,
                sampler=PER,
                n_step=n_step,
                num_envs=2,
                autoreset="next_step",
                device=where,
            ),
            lambda achieved, desired: -np.abs(achieved - desired).sum(1),
            terminated=lambda achieved, desired: (achieved == desired).all(1),
            goals=2,
        )
        for where in (cuda, CPU)
    )
    rng = np.random.default_rng(n_step)

    def observation():
        return {
            key: rng.integers(0, 3, (2, *field.shape)) * 1.0 for key, field in fields["obs"].items()
        }

    for number in range(30):
        step = {
            "obs": observation(),
            "action": rng.normal(size=2),
            "reward": rng.normal(size=2),
            "next_obs": observation(),
            "terminated": rng.random(2) < 0.1,
            "truncated": rng.random(2) < 0.1,
        }
        for hindsight in (ours, theirs):
            hindsight.add(**step)
            if number == 20:
                hindsight.end_episode(1)
    assert ours.episodes == theirs.episodes > 3
    assert_same_buffer_there(place.device, ours.buffer, theirs.buffer)


def test_steps_of_many_threads_and_their_streams_are_all_there(place, cuda):
    threads, each = 4, place.scale.flow
    buffer = ReplayBuffer(threads * each, W1, sampler=PER, device=cuda)
    rows = [one_time(W1, number, 1, cuda) for number in range(threads)]
    torch.cuda.synchronize()

    def add(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(each):
                buffer.add(**rows[number])

    running = [threading.Thread(target=add, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    seen = buffer.all().obs[:, 0]
    assert torch.bincount(seen.long().cpu()).tolist() == [each] * threads
    buffer.check()


def test_a_buffer_goes_from_device_to_device_and_back(place, cuda, tmp_path):
    ours = full(W1, place.scale.rows, PER, cuda)
    ours.save(tmp_path / "gpu")
    cpu = ReplayBuffer.load(tmp_path / "gpu", device="cpu")
    require_same_state(ours, cpu)
    cpu.save(tmp_path / "cpu")
    back = ReplayBuffer.load(tmp_path / "cpu", device="cuda")
    again = ReplayBuffer(place.scale.rows, W1, sampler=PER, device=cuda, seed=5)
    again.load_state_dict(back.state_dict())
    batches = [buffer.sample(place.scale.batch) for buffer in (cpu, ours, back, again)]
    for batch in batches[1:]:
        require_same_batch(batch, batches[0])


def test_rows_on_the_host_are_drawn_and_updated_as_elsewhere(place, cuda):
    here, there = (
        full(W1, place.scale.rows, PER, cuda, rows_on=rows_on) for rows_on in ("host", "device")
    )
    assert here.memory().on_device < there.memory().on_device
    for buffer in (here, there):
        batch = buffer.sample(place.scale.batch)
        buffer.update_priorities(batch.ids, errors(place.scale.batch, cuda))
        buffer.add(**one_time(W1, 3, 1, cuda))
    require_same_state(here, there)


def test_more_than_the_device_has_is_refused_by_name(place, cuda):
    free, _ = torch.cuda.mem_get_info()
    with pytest.raises(
        ConfigError, match=r"needs .* GB on cuda.* are free; capacity=\d+ would fit"
    ):
        ReplayBuffer(free // 400, STATES, device=cuda)
    buffer = full(W1, 10, PER, cuda)
    if place.calls > 100:  # the pretended device has as much memory as the host
        with pytest.raises(InputError, match="draw it in parts"):
            buffer.sample(free // 100)
    assert len(buffer.sample(3)) == 3


def test_what_is_of_the_host_is_refused_during_capture_and_nothing_has_changed(place, cuda):
    buffer = full(W1, 20, PER, cuda)
    host = {name: value[0].numpy() for name, value in one_time(W1, 0, 1, CPU).items()}
    calls = [lambda: buffer.add(**host), buffer.clear, lambda: buffer.sample_range(3, 0, 9)]
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(1, device=cuda)
    with torch.cuda.graph(graph):
        x.add_(1)
        for call in calls:
            with pytest.raises(UnsupportedError, match="captured"):
                call()
    assert buffer.stats(wait=True)["added"] == len(buffer) == 20


def test_what_cuda_refuses_to_capture_is_an_error_after_which_all_else_goes_on(place, cuda):
    generator, twin = (torch.Generator(cuda).manual_seed(1) for _ in range(2))
    graphs = Graphs([generator])
    drawn, expected = [], [draw(twin) for _ in range(WARM_UP + 1)]

    def asks():
        drawn.append(draw(generator).item())

    for _ in range(WARM_UP):
        graphs.run("asks", asks)
    with pytest.raises(UnsupportedError, match="cannot be captured"):
        graphs.run("asks", asks)
    graphs.run("asks", asks)
    assert drawn == [number.item() for number in expected]
    torch.rand(1, device=cuda)
    torch.cuda.empty_cache()
    x, others = torch.zeros(1, device=cuda), Graphs([generator])
    for _ in range(WARM_UP + 2):
        others.run("adds", lambda: x.add_(draw(generator)))
    assert (len(graphs), len(others)) == (0, 1)
    assert x.item() == pytest.approx(sum(draw(twin).item() for _ in range(WARM_UP + 2)))


def draw(generator):
    return torch.rand(1, generator=generator, device=generator.device)


def test_a_sort_is_a_graph_of_its_own(place, cuda):
    buffers = [full(W1, 20, RankBased(resort_every=1000), d) for d in (cuda, CPU)]
    for buffer in buffers:
        buffer.resort()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        buffers[0].resort()
    for buffer in buffers:
        ids = torch.arange(20, device=buffer.device)
        buffer.update_priorities(ids, errors(20, buffer.device, seed=3))
    graph.replay()
    buffers[1].resort()
    torch.cuda.synchronize()
    require_same_batch(*(buffer.sample(place.scale.batch) for buffer in buffers))


def test_a_stream_longer_than_the_ring_leaves_the_newest_steps(place, cuda):
    count = 2 * place.scale.rows + 3
    buffers = [ReplayBuffer(place.scale.rows, W1, sampler=PER, device=d) for d in (cuda, CPU)]
    for buffer in buffers:
        buffer.extend(**steps(W1, 0, count, buffer.device))
    require_same_state(*buffers)
