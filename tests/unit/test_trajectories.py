"""Episodes are appended, teed, read and given to buffers again."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest
import torch

from relive import (
    ConfigError,
    CorruptError,
    Episode,
    Field,
    InputError,
    Proportional,
    ReplayBuffer,
    TrajectoryStore,
    UnsupportedError,
)
from relive.storage import episode_files, episode_writer
from tests.equivalence.states import assert_same_state, same_bits
from tests.unit.unchanged import refused

FIELDS = {"obs": Field((2,)), "action": Field((), torch.int64)}
RICH = {
    "obs": {
        "image": Field((3, 4), store=torch.uint8),
        "state": {"b": Field((2,), torch.float64), "a": Field((), torch.int16)},
    },
    "action": {"move": Field((2,), store=torch.bfloat16), "press": Field((), torch.bool)},
    "log_prob": Field((), store=torch.float16),
    "count": Field((2,), torch.uint32),
}


def episode_of(length: int, first: int = 0, ended: str = "terminated") -> dict[str, np.ndarray]:
    """Steps whose numbers tell which they are."""
    numbers = np.arange(first, first + length + 1, dtype=np.float32)
    obs = np.stack([numbers, -numbers], 1)
    last = np.arange(length) == length - 1
    return {
        "obs": obs[:-1],
        "action": np.arange(first, first + length),
        "reward": numbers[:-1],
        "next_obs": obs[1:],
        "terminated": last & (ended == "terminated"),
        "truncated": last & (ended == "truncated"),
    }


def rich_steps(length: int, seed: int = 0) -> dict[str, object]:
    rng = np.random.default_rng(seed)

    def observations(count):
        return {
            "image": rng.integers(0, 256, (count, 3, 4), np.uint8),
            "state": {
                "b": rng.normal(size=(count, 2)),
                "a": rng.integers(-(2**15), 2**15, count, np.int16),
            },
        }

    return {
        "obs": observations(length),
        "next_obs": observations(length),
        "action": {
            "move": torch.from_numpy(rng.normal(size=(length, 2))).to(torch.bfloat16),
            "press": rng.random(length) < 0.5,
        },
        "log_prob": rng.normal(size=length).astype(np.float16),
        "count": rng.integers(0, 2**32, (length, 2), np.uint32),
        "reward": rng.normal(size=length).astype(np.float32),
        "terminated": rng.random(length) < 0.1,
        "truncated": rng.random(length) < 0.1,
    }


@pytest.fixture
def store(tmp_path):
    with TrajectoryStore(tmp_path / "store", FIELDS) as made:
        yield made


# Appending and reading


def test_what_is_appended_is_read_again(store):
    assert store.append(**episode_of(5), env=3) == 1
    episode = store.episode(0)
    assert isinstance(episode, Episode)
    for name, values in episode_of(5).items():
        assert same_bits(getattr(episode, name), torch.from_numpy(values)), name
    assert (episode.length, episode.env, episode.ended) == (5, 3, "terminated")
    assert episode.episode_return == 0 + 1 + 2 + 3 + 4
    assert repr(episode) == "Episode(0: 5 steps, return 10, terminated, env=3)"
    assert set(episode.keys()) == {*FIELDS, "next_obs", "reward", "terminated", "truncated"}


def test_steps_are_cut_where_they_end_and_the_last_is_closed(store):
    parts = [episode_of(3), episode_of(1, 10, "truncated"), episode_of(4, 20, "neither")]
    steps = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert store.append(**steps) == 3
    assert [(e.length, e.ended) for e in store] == [
        (3, "terminated"),
        (1, "truncated"),
        (4, "truncated"),
    ]
    assert store.episode(-1).truncated.tolist() == [False, False, False, True]
    assert (len(store), store.num_steps) == (3, 8)


def test_both_flags_count_as_terminated(store):
    both = episode_of(2)
    store.append(**{**both, "truncated": both["terminated"]})
    assert store.episode(0).ended == "terminated"
    assert store.episode(0).truncated.tolist() == [False, True]


def test_nested_own_and_narrow_fields_keep_their_bits(tmp_path):
    given = rich_steps(100)
    with TrajectoryStore(tmp_path / "store", RICH) as store:
        store.append(**given)
        episodes = list(store)
        stored = np.concatenate([e._read()["obs.image"] for e in episodes]).reshape(100, 3, 4)
        assert np.array_equal(stored, given["obs"]["image"])
        whole = torch.cat([e.obs["image"] for e in episodes])
        assert torch.equal(whole, torch.from_numpy(given["obs"]["image"]).float() / 255)
        press = torch.cat([e.action["press"] for e in episodes])
        assert press.tolist() == given["action"]["press"].tolist()
        counts = torch.cat([e["count"] for e in episodes])
        assert np.array_equal(counts.numpy(), given["count"])
        assert torch.equal(
            torch.cat([e.log_prob for e in episodes]), torch.from_numpy(given["log_prob"]).float()
        )
        state = torch.cat([e.next_obs["state"]["b"] for e in episodes])
        assert torch.equal(state, torch.from_numpy(given["next_obs"]["state"]["b"]))


def test_an_observation_is_on_disk_once(store):
    store.append(**episode_of(1000))
    step = 8 + 8 + 4 + 1 + 1  # next_obs, action, reward, flags
    entry, header = 64, 64
    assert store.stats()["bytes"] == 1000 * step + 8 + 4 + entry + 2 * header
    episode = store.episode(0)
    assert episode.obs[1:].data_ptr() == episode.next_obs.data_ptr()


def test_nan_and_signs_of_zero_are_told_apart(store):
    given = episode_of(3)
    given["next_obs"] = np.array([[np.nan, 0.0], [-0.0, 1.0], [2.0, 2.0]], np.float32)
    given["obs"] = np.array([[9.0, 9.0], [np.nan, 0.0], [0.0, 1.0]], np.float32)
    store.append(**given)
    assert same_bits(store.episode(0).obs, torch.from_numpy(given["obs"]))
    assert same_bits(store.episode(0).next_obs, torch.from_numpy(given["next_obs"]))


def test_rewards_that_cancel_to_nan_are_kept(store):
    given = episode_of(2)
    given["reward"] = np.array([np.inf, -np.inf], np.float32)
    store.append(**given)
    assert np.isnan(store.episode(0).episode_return)
    assert store.episode(0).reward.tolist() == [np.inf, -np.inf]


def test_a_long_episode_is_written_in_runs_and_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr("relive.writing.episodes.RUN", 100)
    monkeypatch.setattr(episode_writer, "PENDING", 1000)
    with TrajectoryStore(tmp_path / "store", FIELDS) as store:
        store.append(**episode_of(500))
        assert store._index.num_entries == 125
        assert np.array_equal(store.episode(0).obs.numpy(), episode_of(500)["obs"])


def test_no_steps_are_no_episode(store):
    assert store.append(**episode_of(0)) == 0
    assert len(store) == 0
    assert list(store) == []


BAD = {
    "own field missing": ({"reward": None}, "reward: given shape"),
    "shape": ({"obs": np.zeros((3, 5))}, r"obs: given shape \(3, 5\), expected \(3, 2\)"),
    "dtype": ({"action": np.zeros(3)}, "action: given float64, expected torch.int64"),
    "own": ({"colour": np.zeros(3)}, r"the store's own fields are \[\]; unknown: \['colour'\]"),
    "done": ({"done": np.zeros(3)}, r"unknown: \['done'\]; done is either terminated or truncated"),
    "env": ({"env": -1}, "env is a whole number"),
    "env is none": ({"env": None}, "env is a whole number"),
    "ready-made": ({"discount": np.ones(3)}, r"unknown: \['discount'\]$"),
}


@pytest.mark.parametrize(("change", "match"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused_and_changes_nothing(store, change, match):
    store.append(**episode_of(2))
    with pytest.raises(InputError, match=match):
        store.append(**{**episode_of(3), **change})
    assert (len(store), store.num_steps) == (1, 2)
    assert store.append(**episode_of(3)) == 1


@pytest.mark.parametrize("number", [1, -2, 0.0, True, "0"])
def test_an_episode_that_is_none_is_refused(store, number):
    store.append(**episode_of(2))
    with pytest.raises(InputError, match="there are 1 episodes, numbered from 0"):
        store.episode(number)


def test_a_field_that_is_none_is_refused(store):
    store.append(**episode_of(2))
    with pytest.raises(KeyError, match="an episode has no field 'ops'; it has obs, action"):
        store.episode(0)["ops"]
    with pytest.raises(AttributeError, match="an episode has no field 'ops'"):
        _ = store.episode(0).ops


# Opening


def test_a_store_is_opened_again_with_what_is_in_it(tmp_path):
    with TrajectoryStore(tmp_path / "a" / "b", RICH) as store:
        store.append(**rich_steps(30))
        count = len(store)
    assert len(store) == count  # reading goes on after close
    with TrajectoryStore(tmp_path / "a" / "b") as store:
        assert store.fields == RICH
        assert len(store) == count
        store.append(**rich_steps(5, seed=1))
    assert TrajectoryStore(str(tmp_path / "a" / "b"), mode="r").num_steps == 35
    assert store.path == tmp_path / "a" / "b"


def test_the_same_fields_in_another_order_are_the_same(tmp_path):
    TrajectoryStore(tmp_path, RICH).close()
    turned = {key: RICH[key] for key in reversed(RICH)}
    turned["obs"] = {key: RICH["obs"][key] for key in reversed(RICH["obs"])}
    TrajectoryStore(tmp_path, turned).close()


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({**FIELDS, "obs": Field((3,))}, r"obs is torch.float32 \[3\], not torch.float32 \[2\]"),
        ({**FIELDS, "obs": {"a": Field((2,))}}, "obs is missing; obs.a is missing"),
        ({**FIELDS, "x": Field()}, "x is missing"),
        ({**FIELDS, "obs": Field((2,), store=torch.uint8)}, "stored as torch.uint8, not"),
    ],
)
def test_other_fields_are_refused_with_the_difference(store, fields, match, mode):
    store.close()
    with pytest.raises(ConfigError, match=match):
        TrajectoryStore(store.path, fields, mode=mode)
    TrajectoryStore(store.path).close()  # and the lock is free


@pytest.mark.parametrize("mode", ["a", "r"])
def test_where_no_store_is_fields_are_asked_for(tmp_path, mode):
    with pytest.raises(InputError, match=r"there is no store in .*give fields="):
        TrajectoryStore(tmp_path / "none", mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_makes_no_store(tmp_path):
    with pytest.raises(InputError, match="there is no store"):
        TrajectoryStore(tmp_path / "none", FIELDS, mode="r")
    assert list(tmp_path.iterdir()) == []


def test_a_mode_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="mode is 'a' to append and read, or 'r' to read"):
        TrajectoryStore(tmp_path, FIELDS, mode="w")


def test_a_second_writer_is_refused_and_may_write_later(store):
    with pytest.raises(UnsupportedError, match=r"written by process \d+.*one writer at a time"):
        TrajectoryStore(store.path)
    store.append(**episode_of(2))
    store.close()
    with TrajectoryStore(store.path) as other:
        assert len(other) == 1


def test_a_reader_only_reads(store):
    read = TrajectoryStore(store.path, mode="r")
    for call in (
        lambda: read.append(**episode_of(1)),
        read.flush,
        lambda: ReplayBuffer(5, FIELDS).tee(read),
    ):
        with pytest.raises(UnsupportedError, match="opened with mode='r'"):
            call()
    read.close()  # nothing to close


def test_a_reader_sees_what_was_flushed_once_it_looks(store):
    read = TrajectoryStore(store.path, mode="r")
    buffer = ReplayBuffer(5, FIELDS)
    buffer.tee(store)
    add(buffer, episode_of(3))
    assert (read.refresh(), len(read)) == (0, 0)
    store.flush()
    assert len(read) == 0
    assert (read.refresh(), len(read)) == (1, 1)
    store.append(**episode_of(4))  # needs no flush
    store.flush(sync=True)
    assert read.refresh() == 1
    assert [len(episode) for episode in read] == [3, 4]
    assert store.refresh() == 0


def test_a_closed_store_refuses_to_write(store):
    store.close()
    store.close()
    with pytest.raises(InputError, match="is closed; open it again"):
        store.append(**episode_of(1))
    with pytest.raises(InputError, match="is closed"):
        ReplayBuffer(5, FIELDS).tee(store)


def test_a_store_that_nobody_holds_is_closed(tmp_path):
    TrajectoryStore(tmp_path, FIELDS).append(**episode_of(2))
    with TrajectoryStore(tmp_path) as store:
        assert len(store) == 1


def test_a_reader_and_its_episodes_can_be_pickled_and_a_writer_cannot(store):
    store.append(**episode_of(4))
    with pytest.raises(UnsupportedError, match="cannot be pickled or copied"):
        pickle.dumps(store)
    with pytest.raises(UnsupportedError, match="cannot be pickled or copied"):
        copy.deepcopy(store)
    read = pickle.loads(pickle.dumps(TrajectoryStore(store.path, mode="r")))
    assert len(read) == 1
    assert repr(read) == f"TrajectoryStore({str(store.path)!r}, 1 episodes, 4 steps, mode='r')"
    episode = pickle.loads(pickle.dumps(read.episode(0)))
    assert torch.equal(episode.obs, store.episode(0).obs)
    store.close()
    assert len(copy.copy(store)) == 1


def test_a_change_of_the_working_directory_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with TrajectoryStore("store", FIELDS) as store:
        monkeypatch.chdir("/")
        store.append(**episode_of(3))
        assert store.episode(0).obs.shape == (3, 2)


# Teeing


def add(buffer, steps, **more):
    for i in range(len(steps["reward"])):
        buffer.add(**{name: values[i] for name, values in steps.items()}, **more)


def test_a_store_holds_every_step_after_the_ring_has_turned_three_times(tmp_path):
    buffer = ReplayBuffer(50, FIELDS, n_step=3)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 20, 30)
    with TrajectoryStore(tmp_path, FIELDS) as store:
        buffer.tee(store)
        for number, length in enumerate(lengths):
            add(buffer, episode_of(length, 100 * number))
        assert len(store) == 30
        assert store.num_steps == lengths.sum() > 3 * 50
        for number, episode in enumerate(store):
            for name, values in episode_of(lengths[number], 100 * number).items():
                assert same_bits(episode[name], torch.from_numpy(values)), name
    assert len(buffer) == 50


def test_next_step_resets_are_dropped_and_counted(store):
    buffer = ReplayBuffer(50, FIELDS, num_envs=2, autoreset="next_step")
    buffer.tee(store)
    one, two = episode_of(3), episode_of(6, 10)
    fake = {name: values[:1] for name, values in episode_of(2, 77).items()}
    follow = episode_of(2, 30)
    lane = {name: np.concatenate([one[name], fake[name], follow[name]]) for name in one}
    for i in range(6):
        buffer.add(**{name: np.stack([lane[name][i], two[name][i]]) for name in one})
    assert sorted((e.env, len(e), float(e.obs[0, 0])) for e in store) == [
        (0, 2, 30.0),
        (0, 3, 0.0),
        (1, 6, 10.0),
    ]
    assert store.stats()["dropped_reset_rows"] == 1
    assert buffer.stats()["dropped_reset_rows"] == 1
    buffer.tee(None)
    assert store.stats()["dropped_reset_rows"] == 1


def test_the_true_last_observation_is_the_final_one(store):
    buffer = ReplayBuffer(50, FIELDS, autoreset="same_step")
    buffer.tee(store)
    steps = episode_of(3)
    final = steps["next_obs"][-1:].copy()
    steps["next_obs"][-1] = 55  # of the next episode
    for i in range(3):
        step = {name: values[i] for name, values in steps.items()}
        buffer.add(**step, final_obs=final if i == 2 else None)
    assert store.episode(0).next_obs[-1].tolist() == final[0].tolist()


def test_an_episode_ended_by_hand_is_truncated(store):
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(store)
    add(buffer, episode_of(3, ended="neither"))
    store.flush()  # its last step is in the files already
    buffer.end_episode()
    buffer.end_episode()
    add(buffer, episode_of(2))
    assert [(e.length, e.ended) for e in store] == [(3, "truncated"), (2, "terminated")]
    assert store.episode(0).truncated.tolist() == [False, False, True]
    assert buffer.all().truncated.tolist()[:3] == [False, False, True]


@pytest.mark.parametrize("how", ["clear", "tee", "close"])
def test_an_episode_that_nobody_ends_is_unfinished(store, how):
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(store)
    add(buffer, episode_of(3, ended="neither"))
    assert store.stats()["open"] == 1
    {"clear": buffer.clear, "tee": lambda: buffer.tee(None), "close": store.close}[how]()
    assert [(e.length, e.ended) for e in store] == [(3, "unfinished")]
    assert store.episode(0).truncated.tolist() == [False] * 3
    assert (store.stats()["open"], store.stats()["unfinished"]) == (0, 1)


def test_ready_made_rows_are_no_steps_and_are_counted(store):
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(store)
    steps = episode_of(4)
    buffer.extend(**steps, discount=1.0 - steps["terminated"])
    assert (len(buffer), len(store), store.stats()["ready_made_rows"]) == (4, 0, 4)


def test_fields_that_the_store_has_not_are_left_out(tmp_path):
    fields = {"tag": Field((), torch.int32), **FIELDS}
    with TrajectoryStore(tmp_path, FIELDS) as store:
        buffer = ReplayBuffer(50, fields)
        buffer.tee(store)
        add(buffer, episode_of(3), tag=7)
        buffer.extend(**episode_of(4), tag=np.arange(4))
        assert [len(episode) for episode in store] == [3, 4]
        assert np.array_equal(store.episode(1).next_obs.numpy(), episode_of(4)["next_obs"])


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({**FIELDS, "tag": Field()}, "tag is missing"),
        ({**FIELDS, "obs": Field((2,), store=torch.float16)}, "obs is torch.float32 .2., not"),
    ],
)
def test_a_buffer_that_lacks_a_field_cannot_tee(tmp_path, fields, match):
    with TrajectoryStore(tmp_path, fields) as store:
        buffer = ReplayBuffer(50, FIELDS)
        with refused(buffer, InputError, match):
            buffer.tee(store)
        assert buffer._tee is None


def test_something_else_than_a_store_is_refused(store):
    buffer = ReplayBuffer(50, FIELDS)
    with refused(buffer, InputError, "tee takes a TrajectoryStore or None; given 'x'"):
        buffer.tee("x")


def test_two_buffers_may_tee_into_one_store(store):
    one, two = ReplayBuffer(50, FIELDS), ReplayBuffer(50, FIELDS)
    one.tee(store), two.tee(store)
    first, second = episode_of(5), episode_of(5, 10)
    for i in range(5):
        one.add(**{name: values[i] for name, values in first.items()})
        two.add(**{name: values[i] for name, values in second.items()})
    assert sorted(e.action.tolist() for e in store) == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]


def test_copies_of_a_buffer_tee_nowhere(store):
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(store)
    add(buffer, episode_of(3))
    for other in (copy.deepcopy(buffer), buffer.grown(100)):
        add(other, episode_of(2))
    assert len(store) == 1


def test_a_step_after_the_store_was_closed_is_refused_and_nothing_happens(store):
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(store)
    add(buffer, episode_of(3, ended="neither"))
    store.close()
    step = {name: values[0] for name, values in episode_of(1).items()}
    for call in (
        lambda: buffer.add(**step),
        lambda: buffer.extend(**episode_of(2)),
        lambda: buffer.extend(**episode_of(2), discount=np.ones(2)),
        buffer.end_episode,
        buffer.clear,
    ):
        with refused(buffer, InputError, r"buffer\.tee\(None\)"):
            call()
    buffer.tee(None)
    buffer.add(**step)
    assert [(e.length, e.ended) for e in store] == [(3, "unfinished")]


def test_a_store_lives_as_long_as_a_buffer_tees_into_it(tmp_path):
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(TrajectoryStore(tmp_path, FIELDS))
    add(buffer, episode_of(3))
    buffer.tee(None)
    with TrajectoryStore(tmp_path) as store:
        assert len(store) == 1


def test_threads_may_add_flush_and_read_at_once(store):
    buffers = [ReplayBuffer(50, FIELDS) for _ in range(2)]
    for buffer in buffers:
        buffer.tee(store)

    def write(buffer, first):
        for number in range(40):
            add(buffer, episode_of(7, first + 10 * number))

    threads = [threading.Thread(target=write, args=(b, 1000 * k)) for k, b in enumerate(buffers)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        store.flush()
        assert all(len(episode) == 7 for episode in store)
    for thread in threads:
        thread.join()
    firsts = sorted(int(e.action[0]) for e in store)
    assert firsts == [1000 * k + 10 * number for k in range(2) for number in range(40)]


@pytest.mark.parametrize("after", [0, 1, 50, 200])
def test_a_full_disk_stops_the_step_and_loses_none(tmp_path, monkeypatch, after):
    """The disk takes so many bytes of the next write and no more, then there is room again."""
    monkeypatch.setattr("relive.writing.tee.STAGED", 300)
    monkeypatch.setattr(episode_writer, "PENDING", 150)
    real = episode_writer.write_all
    full = False

    def write_all(file, chunk):
        if full:
            real(file, chunk[:after])
            raise OSError("No space left on device")
        real(file, chunk)

    monkeypatch.setattr(episode_writer, "write_all", write_all)
    store, buffer = TrajectoryStore(tmp_path, FIELDS), ReplayBuffer(1000, FIELDS)
    buffer.tee(store)
    written = attempts = 0
    rng = np.random.default_rng(0)
    steps = episode_of(100)
    while written < 100:
        attempts += 1
        full = bool(rng.random() < 0.5)
        step = {name: values[written] for name, values in steps.items()}
        with contextlib.suppress(OSError):
            buffer.add(**step)
            written += 1
    assert attempts > 100
    assert len(buffer) == 100
    full = True
    with pytest.raises(OSError, match="No space left"):
        store.append(**episode_of(3))
    full = False
    assert len(store) == 1
    assert store.append(**episode_of(3)) == 1
    assert np.array_equal(store.episode(0).obs.numpy(), steps["obs"])
    store.check()
    store.close()
    assert [len(e) for e in TrajectoryStore(tmp_path, mode="r")] == [100, 3]


# Filling


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_filled_buffer_is_as_if_each_episode_had_been_extended(store, n_step):
    lengths = [5, 1, 2, 9]
    filled, extended = (
        ReplayBuffer(30, FIELDS, n_step=n_step, gamma=0.9, sampler=Proportional()) for _ in "ab"
    )
    for number, length in enumerate(lengths):
        given = episode_of(length, 10 * number)
        store.append(**given)
        extended.extend(**given)
    assert store.fill(filled) == (4, 17)
    assert_same_state(filled, extended)
    filled.check()


def test_episodes_are_chosen_by_what_they_are(store):
    for number in range(10):
        store.append(**episode_of(number + 1, ended="truncated" if number % 3 else "terminated"))

    def filled(where=None, **more):
        buffer = ReplayBuffer(100, FIELDS)
        counts = store.fill(buffer, where, **more)
        assert counts[1] == len(buffer)
        return counts

    assert filled(lambda e: e.episode_return > 30) == (2, 19)
    assert filled(lambda e: e.ended == "terminated") == (4, 1 + 4 + 7 + 10)
    assert filled(lambda e: float(e.obs[-1, 0]) == 2.0) == (1, 3)
    assert filled(limit=3) == (3, 6)
    assert filled(lambda e: e.length > 3, limit=2) == (2, 9)
    assert filled(limit=0) == (0, 0)
    assert filled() == (10, 55)


def test_a_buffer_may_have_fewer_fields_in_another_order_and_other_stored_dtypes(tmp_path):
    fields = {
        "action": RICH["action"],
        "count": RICH["count"],
        "obs": {"state": RICH["obs"]["state"], "image": Field((3, 4))},  # not in bytes
    }
    given = rich_steps(40)
    with TrajectoryStore(tmp_path, RICH) as store:
        store.append(**given)
        buffer = ReplayBuffer(100, fields)
        assert store.fill(buffer) == (len(store), 40)
        rows = buffer.all()
        assert torch.equal(rows.obs["image"], torch.from_numpy(given["obs"]["image"]).float() / 255)
        assert np.array_equal(rows["count"].numpy(), given["count"])
        assert same_bits(
            rows.next_obs["state"]["a"], torch.from_numpy(given["next_obs"]["state"]["a"])
        )
        same = ReplayBuffer(100, RICH)
        store.fill(same)
        assert torch.equal(same.all().obs["image"], rows.obs["image"])
        assert same.stats()["out_of_range"] == 0


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({**FIELDS, "tag": Field()}, "tag is missing"),
        ({**FIELDS, "action": Field()}, r"action is torch.int64 \[\], not torch.float32"),
        ({**FIELDS, "obs": {"a": Field((2,))}}, r"obs\.a is missing"),
    ],
)
def test_a_buffer_with_other_fields_is_refused(store, fields, match):
    store.append(**episode_of(3))
    with pytest.raises(InputError, match=match):
        store.fill(ReplayBuffer(10, fields))


def test_a_lane_in_the_middle_of_an_episode_is_refused(store):
    store.append(**episode_of(3))
    buffer = ReplayBuffer(30, FIELDS, num_envs=2, autoreset="next_step", n_step=2)
    first = {name: np.stack([v[0], v[0]]) for name, v in episode_of(2, 50).items()}
    buffer.add(**{**first, "terminated": [False, True]})
    for env in (0, 1):  # steps wait; a fake step is due
        with refused(buffer, InputError, f"lane {env} of the buffer is in the middle"):
            store.fill(buffer, env=env)
    buffer.end_episode(0)
    assert store.fill(buffer, env=0) == (1, 3)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"limit": -1}, "limit is a whole number >= 0"),
        ({"limit": True}, "limit is a whole number >= 0"),
        ({"env": 1}, r"env is one of 0\.\.\.0"),
        ({"env": None}, "env is one lane"),
    ],
)
def test_a_fill_that_cannot_be_is_refused(store, arguments, match):
    store.append(**episode_of(3))
    buffer = ReplayBuffer(30, FIELDS)
    with refused(buffer, InputError, match):
        store.fill(buffer, **arguments)


def test_fill_takes_a_buffer(store):
    with pytest.raises(InputError, match="fill writes into a ReplayBuffer; given 3"):
        store.fill(3)


def test_a_buffer_is_not_filled_from_the_store_it_tees_into(store):
    store.append(**episode_of(3))
    buffer = ReplayBuffer(30, FIELDS)
    buffer.tee(store)
    with refused(buffer, InputError, "the buffer tees into this store"):
        store.fill(buffer)


def test_a_store_is_copied_into_another_through_a_buffer(store, tmp_path):
    for number in range(5):
        store.append(**episode_of(number + 1))
    buffer = ReplayBuffer(2, FIELDS)
    with TrajectoryStore(tmp_path / "good", FIELDS) as good:
        buffer.tee(good)
        store.fill(buffer, lambda e: e.length > 2)
        assert [e.length for e in good] == [3, 4, 5]
        assert [e.ended for e in good] == ["terminated"] * 3


def test_a_damaged_episode_is_named_and_those_before_it_are_there(store):
    for number in range(3):
        store.append(**episode_of(4, 10 * number))
    data = store.path / episode_files.DATA
    whole = bytearray(data.read_bytes())
    whole[len(whole) // 2] ^= 1
    data.write_bytes(whole)
    buffer = ReplayBuffer(30, FIELDS)
    with pytest.raises(CorruptError, match=r"episode 1 of the store in .* its checksum differs"):
        store.fill(buffer)
    assert len(buffer) == 4
    with pytest.raises(CorruptError, match=r"the 0 episodes \(0 steps\) .*damaged='skip'"):
        store.fill(buffer, lambda episode: episode.number == 1 or bool(episode.action[0] < 0))
    with pytest.raises(InputError, match="damaged is 'raise' or 'skip'; given 'leave'"):
        store.fill(buffer, damaged="leave")
    buffer.clear()
    assert store.fill(buffer, damaged="skip") == (2, 8)
    assert buffer.all().action.tolist() == [0, 1, 2, 3, 20, 21, 22, 23]
    assert store.stats()["damaged_left_out"] == 1
    with pytest.raises(CorruptError, match="episode 1"):
        store.check()
    assert store.episode(2).action.tolist() == [20, 21, 22, 23]


def test_an_own_field_whose_name_begins_like_the_next_observation_is_compared(tmp_path):
    fields = {"obs": Field(()), "action": Field(()), "next_obs_mask": Field((), torch.int32)}
    other = {**fields, "next_obs_mask": Field(())}
    with TrajectoryStore(tmp_path, fields) as store:
        with pytest.raises(InputError, match="next_obs_mask is"):
            ReplayBuffer(9, other).tee(store)
        with pytest.raises(InputError, match="next_obs_mask is missing"):
            ReplayBuffer(9, {"obs": Field(()), "action": Field(())}).tee(store)
    with pytest.raises(ConfigError, match="next_obs_mask"):
        TrajectoryStore(tmp_path, other)


@pytest.mark.parametrize("due_then", [False, True])
def test_after_another_state_the_store_leaves_out_the_fake_steps_that_the_buffer_does(
    tmp_path, due_then
):
    fields = {"obs": Field(()), "action": Field(())}
    buffer = ReplayBuffer(50, fields, num_envs=2, autoreset="next_step")
    with TrajectoryStore(tmp_path, fields) as store:
        buffer.tee(store)

        def step(number, terminated=False):
            value = np.full(2, number, np.float32)
            buffer.add(
                obs=value, action=value, reward=value, next_obs=value,
                terminated=np.full(2, terminated), truncated=np.zeros(2, bool),
            )  # fmt: skip

        step(1, terminated=due_then)
        state = buffer.state_dict()
        step(2, terminated=not due_then)
        buffer.load_state_dict(state)
        before = len(buffer)
        for number in (3, 4, 5):
            step(number, terminated=number == 5)
        store.flush()
        kept = buffer.all().reward[before:].tolist()[::2]
        assert kept == ([4, 5] if due_then else [3, 4, 5])
        last = list(store)[-1]
        assert last.reward.tolist() == kept


@pytest.fixture
def disk(monkeypatch):
    """A disk that is full as long as it says so, and stores that write at once."""
    monkeypatch.setattr(episode_writer, "PENDING", 1)
    real, state = episode_writer.write_all, {"full": False}

    def write_all(file, chunk):
        if state["full"]:
            raise OSError("No space left on device")
        real(file, chunk)

    monkeypatch.setattr(episode_writer, "write_all", write_all)
    return state


def with_an_open_episode(store, disk):
    """A buffer that tees 3 steps of an episode and has 2 more, and whose disk is full."""
    buffer = ReplayBuffer(50, FIELDS)
    buffer.tee(store)
    add(buffer, episode_of(3, ended="neither"))
    buffer._tee.drain()  # they wait in the store, and must go first
    add(buffer, episode_of(2, 3, ended="neither"))
    disk["full"] = True
    return buffer


@pytest.mark.parametrize("call", ["load_state_dict", "clear", "tee(None)", "tee(other)", "tee(it)"])
def test_a_call_that_a_full_disk_refuses_has_changed_nothing(tmp_path, disk, call):
    store, other = (TrajectoryStore(tmp_path / name, FIELDS) for name in "ab")
    buffer = with_an_open_episode(store, disk)
    fresh = ReplayBuffer(50, FIELDS).state_dict()
    called = {
        "load_state_dict": lambda: buffer.load_state_dict(fresh),
        "clear": buffer.clear,
        "tee(None)": lambda: buffer.tee(None),
        "tee(other)": lambda: buffer.tee(other),
        "tee(it)": lambda: buffer.tee(store),
    }[call]
    for _ in range(2):
        with refused(buffer, OSError, "No space left"):
            called()
    disk["full"] = False
    add(buffer, episode_of(2, 5, ended="neither"))  # of the same episode
    called()
    add(buffer, episode_of(4, 100))
    expected = [(7, "unfinished"), (4, "terminated")]
    after = {"tee(None)": ([], []), "tee(other)": ([], expected[1:])}.get(call)
    assert [(e.length, e.ended) for e in store] == (expected if after is None else expected[:1])
    assert [(e.length, e.ended) for e in other] == ([] if after is None else after[1])
    assert store.episode(0).action.tolist() == [*range(7)]
    store.close()
    other.close()


def test_a_store_that_cannot_be_written_any_more_can_be_left(tmp_path, disk):
    store = TrajectoryStore(tmp_path / "a", FIELDS)
    buffer = with_an_open_episode(store, disk)
    buffer.tee(None, lose=True)
    add(buffer, episode_of(4, 5))
    assert len(buffer) == 9
    assert store._recorder._tees == []
    with TrajectoryStore(tmp_path / "b", FIELDS) as other:
        buffer.tee(other)
        disk["full"] = False
        add(buffer, episode_of(2, 20))
        buffer.tee(None)
        assert [episode.length for episode in other] == [2]
    store.close()
    with TrajectoryStore(tmp_path / "a", mode="r") as read:
        assert list(read) == []  # the episode that was going on is lost, the whole of it


def test_a_store_that_was_not_teed_into_after_all_is_as_before(tmp_path, disk):
    store, other = (TrajectoryStore(tmp_path / name, FIELDS) for name in "ab")
    buffer = with_an_open_episode(store, disk)
    with pytest.raises(OSError, match="No space left"):
        buffer.tee(other)
    disk["full"] = False
    assert (store._recorder._tees, other._recorder._tees) == ([buffer._tee], [])
    store.close()


def test_after_a_state_that_a_full_disk_refused_fake_steps_are_left_out_as_before(tmp_path, disk):
    buffer = ReplayBuffer(50, FIELDS, autoreset="next_step")
    with TrajectoryStore(tmp_path, FIELDS) as store:
        buffer.tee(store)
        fresh = buffer.state_dict()
        steps = episode_of(3)
        for i in range(3):
            buffer.add(**{key: values[i] for key, values in steps.items()})
        buffer._tee.drain()
        disk["full"] = True
        with pytest.raises(OSError, match="No space left"):
            buffer.load_state_dict(fresh)
        disk["full"] = False
        for first in (50, 60):  # a fake step comes first
            buffer.add(
                **{key: values[0] for key, values in episode_of(1, first, "neither").items()}
            )
        store.flush()
        assert store.stats()["dropped_reset_rows"] == 1
        buffer.load_state_dict(fresh)  # no fake step is due in this one
        buffer.add(**{key: values[0] for key, values in episode_of(1, 70).items()})
        assert [e.action.tolist() for e in store] == [[0, 1, 2], [60], [70]]
