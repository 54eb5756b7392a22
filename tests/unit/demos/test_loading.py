"""Demonstrations into a buffer: chosen, folded, pinned, or refused before anything has changed."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from relive import Field, Proportional, RankBased, ReplayBuffer, TrajectoryStore, Uniform
from relive.demos import Filter, load, read
from relive.errors import ConfigError, CorruptError, InputError
from tests.unit.demos import files
from tests.unit.demos.test_formats import SAID, WRITERS, written

FIELDS = {"obs": Field((3,)), "action": Field((2,))}
SPLIT = {"obs": {"hand": Field((2,)), "cube": Field((1,))}, "action": Field((2,))}


def made(capacity=100, fields=FIELDS, **settings):
    return ReplayBuffer(capacity, fields, **settings)


def rewarded(rewards):
    """Episodes of two steps with these returns."""
    episodes = files.known([2] * len(rewards))
    return [
        e._replace(reward=np.array([0, r], np.float32))
        for e, r in zip(episodes, rewards, strict=True)
    ]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_step_is_a_row_pinned_in_order(kind, tmp_path):
    known = files.known((4, 1, 3))
    path = written(kind, tmp_path, known)
    buffer = made(fields=SPLIT if kind == "robomimic" else FIELDS)
    loaded = load(buffer, path, **SAID.get(kind, {}))
    assert (loaded.episodes, loaded.rows, loaded.skipped, loaded.pinned) == (3, 8, 0, True)
    assert loaded.format == kind.split()[0]
    assert loaded.path == path
    rows, obs = buffer.all(), buffer.all().obs
    if kind == "robomimic":
        obs = torch.cat([obs["hand"], obs["cube"]], 1)
    assert np.array_equal(obs, np.concatenate([e.obs[:-1] for e in known]))
    assert np.array_equal(rows.action, np.concatenate([e.action for e in known]))
    assert np.array_equal(rows.reward, np.concatenate([e.reward for e in known]))
    ends = [e.ends & (e.terminated or kind in SAID) for e in known]
    assert rows.terminated.tolist() == np.concatenate(ends).tolist()
    assert (rows.discount == 0).tolist() == rows.terminated.tolist()
    buffer.check()
    with pytest.raises(InputError, match="8 demonstrations are pinned already"):
        buffer.pin_demonstrations(8)


@pytest.mark.parametrize("autoreset", ["disabled", "next_step", "same_step"])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3])
def test_n_steps_are_folded_and_no_episode_runs_into_the_next(
    autoreset, num_envs, n_step, tmp_path
):
    known = files.known((4, 1, 3))
    path = files.minari_hdf5(tmp_path, known)
    buffer = made(num_envs=num_envs, n_step=n_step, gamma=0.5, autoreset=autoreset)
    assert load(buffer, path).rows == len(buffer) == 8
    assert buffer.stats()["dropped_reset_rows"] == 0
    returns, discounts, next_obs = [], [], []
    for e in known:
        for t in range(len(e.reward)):
            window = e.reward[t : t + n_step].astype(np.float64)
            returns.append(sum(0.5**k * r for k, r in enumerate(window)))
            last = t + len(window)
            over = e.terminated and last == len(e.reward)
            discounts.append(0.0 if over else 0.5 ** len(window))
            next_obs.append(e.obs[last])
    rows = buffer.all()
    assert rows.reward.tolist() == pytest.approx(returns, abs=1e-6)
    assert rows.discount.tolist() == discounts
    assert np.array_equal(rows.next_obs, np.stack(next_obs))
    buffer.check()


@pytest.mark.parametrize("sampler", [Uniform(), Proportional(), RankBased()])
def test_half_of_a_batch_is_from_the_file_once_there_are_others(sampler, tmp_path):
    buffer = made(sampler=sampler, num_envs=2, autoreset="same_step")
    load(buffer, files.d4rl(tmp_path, files.known()))
    assert (buffer.sample(64).ids < 8).all()
    for _ in range(200):
        obs = np.zeros((2, 3))
        buffer.add(obs=obs, action=np.zeros((2, 2)), reward=[0, 0], next_obs=obs,
                   terminated=[False] * 2, truncated=[False] * 2)  # fmt: skip
    assert int((buffer.sample(64).ids < 8).sum()) == 32
    assert np.array_equal(buffer.rows(range(8)).obs, np.concatenate(
        [e.obs[:-1] for e in files.known()]))  # fmt: skip
    buffer.check()


@pytest.mark.parametrize(
    ("where", "limit", "episodes", "skipped"),
    [
        (None, None, [1, 5, 3, 9], 0),
        (None, 2, [1, 5], 0),
        (Filter(min_return=3), None, [5, 3, 9], 1),
        (Filter(min_return=3.5), None, [5, 9], 2),
        (Filter(min_return=3), 2, [5, 3], 1),
        (lambda episode: episode.ended == "truncated", None, [5, 9], 2),
    ],
)
def test_episodes_are_chosen(where, limit, episodes, skipped, tmp_path):
    path = files.minari_hdf5(tmp_path, rewarded([1, 5, 3, 9]))
    loaded = load(buffer := made(), path, where=where, limit=limit)
    assert list(loaded.returns) == episodes
    assert (loaded.episodes, loaded.rows, loaded.skipped) == (
        len(episodes), 2 * len(episodes), skipped)  # fmt: skip
    assert buffer.all().reward[1::2].tolist() == episodes


def test_only_successes_where_the_file_tells_them(tmp_path):
    path = files.robomimic(tmp_path, rewarded([1, 0, 1]))
    only = Filter(successful_only=True)
    loaded = load(made(fields=SPLIT), path, where=only, done_means="terminated")
    assert (loaded.episodes, loaded.skipped) == (2, 1)
    path = files.robomimic(tmp_path, rewarded([0.5]))
    with pytest.raises(InputError, match=r"robomimic.hdf5: demo_0: .* choose by the return"):
        load(made(fields=SPLIT), path, where=only, done_means="terminated")


def test_flags_before_the_end_of_an_episode_cut_it_there(tmp_path):
    import h5py

    path = files.robomimic(tmp_path, files.known((4,)))
    with h5py.File(path, "a") as file:
        file["data/demo_0/dones"][...] = [0, 1, 1, 1]
    settings = {"num_envs": 2, "autoreset": "next_step", "n_step": 3}
    load(buffer := made(fields=SPLIT, **settings), path, done_means="terminated")
    assert buffer.all().terminated.tolist() == [True] * 4
    assert buffer.stats()["dropped_reset_rows"] == 0


def test_dropped_steps_and_empty_episodes_are_counted(tmp_path):
    path = files.lerobot(tmp_path / "a", files.known((1, 4, 3)))
    loaded = load(made(), path, last_step="drop", done_means="truncated")
    assert (loaded.episodes, loaded.rows, loaded.skipped, loaded.dropped_steps) == (2, 5, 1, 2)


def test_one_number_a_step_is_a_vector_of_one(tmp_path):
    tree = files.flat(files.known((3,)))
    tree["actions"] = np.array([0, 2, 1])
    path = files.hdf5(tmp_path / "a.hdf5", tree)
    for shape in ((), (1,)):
        fields = {"obs": Field((3,)), "action": Field(shape, torch.int64)}
        load(buffer := made(fields=fields), path)
        assert buffer.all().action.reshape(-1).tolist() == [0, 2, 1]
        assert buffer.all().action.shape == (3, *shape)


def test_several_files_are_pinned_together(tmp_path):
    buffer = made(n_step=2)
    for seed in (0, 1):
        (folder := tmp_path / str(seed)).mkdir()
        assert not load(buffer, files.d4rl(folder, files.known((4,), seed)), pin=False).pinned
    buffer.pin_demonstrations(len(buffer))
    assert len(buffer) == 8
    assert (buffer.sample(32).ids < 8).all()


def test_a_tee_keeps_demonstrations_too(tmp_path):
    buffer = made()
    with TrajectoryStore(tmp_path / "store", FIELDS) as store:
        buffer.tee(store)
        load(buffer, files.d4rl(tmp_path, files.known((4, 2))))
        assert [len(episode) for episode in store] == [4, 2]
        buffer.tee(None)


def test_rows_keep_through_a_save(tmp_path):
    load(buffer := made(), files.d4rl(tmp_path, files.known((4, 2))), reserve=3)
    buffer.save(tmp_path / "saved")
    loaded = ReplayBuffer.load(tmp_path / "saved")
    assert torch.equal(loaded.all().obs, buffer.all().obs)
    assert (loaded.sample(16).ids < 6).all()
    assert len(loaded.pin([0, 1, 2])) == 3  # the room in reserve


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("pin", "capacity", "said"),
    [
        (False, 7, "8 demonstrations and reserve=0 do not fit into 7 of 7 rows"),
        (False, 3, "8 demonstrations and reserve=0 do not fit into 3 of 3 rows"),
        (True, 8, "leave 0 of 8 rows for others, fewer than 1"),
        (True, 3, "leave 0 of 3 rows for others, fewer than 1"),
    ],
)
def test_more_rows_than_there_is_room_for_are_refused_pinned_or_not(
    kind, pin, capacity, said, tmp_path
):
    path = written(kind, tmp_path, files.known((4, 1, 3)))
    buffer = made(capacity, SPLIT if kind == "robomimic" else FIELDS)
    before = buffer.state_dict()["tensors"]
    with pytest.raises(InputError, match=said):
        load(buffer, path, pin=pin, **SAID.get(kind, {}))
    after = buffer.state_dict()["tensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("capacity", "there"), [(8, 0), (8, 5), (20, 5), (20, 20)])
def test_all_rows_that_are_reported_are_there_without_pinning(capacity, there, n_step, tmp_path):
    known = files.known((4, 1, 3))
    path = files.minari_hdf5(tmp_path, known)
    buffer = made(capacity, n_step=n_step)
    if there:
        buffer.extend(obs=np.zeros((there, 3)), action=np.zeros((there, 2)),
                      reward=np.zeros(there), next_obs=np.zeros((there, 3)),
                      terminated=np.arange(there) == there - 1,
                      truncated=np.zeros(there, bool))  # fmt: skip
    assert load(buffer, path, pin=False).rows == 8
    assert len(buffer) == min(capacity, there + 8)  # the oldest made room
    newest = buffer.all().obs[-8:]
    assert np.array_equal(newest, np.concatenate([e.obs[:-1] for e in known]))
    buffer.check()


def test_room_that_is_kept_for_pinned_rows_is_noticed_before_anything_is_written(tmp_path):
    (buffer := made(20)).pin_demonstrations(0, reserve=3)
    path = files.minari_hdf5(tmp_path, files.known((4, 1, 3)))
    with pytest.raises(InputError, match=r"3 rows are kept for pinned ones already; .*pin=False"):
        load(buffer, path)
    assert len(buffer) == buffer.stats()["added"] == 0
    assert load(buffer, path, pin=False).rows == len(buffer) == 8


def test_pinned_rows_and_their_reserve_are_no_room(tmp_path):
    path = files.minari_hdf5(tmp_path, files.known((4, 1, 3)))
    for reserve, fits in ((4, True), (5, False)):
        load(buffer := made(20), path, reserve=reserve)
        if fits:
            assert load(buffer, path, pin=False).rows == 8
        else:
            with pytest.raises(InputError, match=r"8 demonstrations .* 7 of 20 rows"):
                load(buffer, path, pin=False)
        assert len(buffer) == (16 if fits else 8)


REFUSED = {
    "observations of another shape": ({"fields": {**FIELDS, "obs": Field((4,))}}, {},
        r"steps 0 to 3: obs: given shape \(4, 3\), expected \(4, 4\)"),
    "floats for whole numbers": ({"fields": {**FIELDS, "action": Field((2,), torch.int64)}}, {},
        "action: given float32, expected torch.int64"),
    "a dict for a vector": ({"fields": SPLIT}, {}, "obs: given ndarray, expected a mapping"),
    "fields of one's own": ({"fields": {**FIELDS, "goal": Field()}}, {}, r"own fields \['goal'\]"),
    "too many": ({"capacity": 8}, {}, "8 demonstrations and reserve=0 leave 0 of 8 rows"),
    "no room for a batch": ({"capacity": 20}, {"batch_size": 13}, "leave 12 of 20 .* than 13"),
    "too many without pinning": ({"capacity": 7}, {"pin": False}, "7 of 7 rows"),
    "no room for a batch without pinning": (
        {"capacity": 20}, {"pin": False, "batch_size": 13}, "leave 12 of 20 .* than 13"),
    "a batch that is none without pinning": ({}, {"pin": False, "batch_size": 0}, "batch_size"),
    "no room in reserve without pinning": (
        {"capacity": 20}, {"pin": False, "reserve": 13}, "8 .* reserve=13 .* 20 of 20 rows"),
    "a reserve that is none without pinning": (
        {}, {"pin": False, "reserve": -1}, "reserve is a whole number"),
    "no room in reserve": ({"capacity": 20}, {"reserve": 12}, "leave 0 of 20"),
    "a reserve that is none": ({}, {"reserve": -1}, "reserve is a whole number"),
    "a batch that is none": ({}, {"batch_size": 0}, "batch_size"),
    "none that passes": ({}, {"where": Filter(min_return=1e9)}, "none of its 3 episodes passes"),
    "a filter that is none": ({}, {"where": 3}, "where is a Filter or a function"),
    "a limit that is none": ({}, {"limit": 0}, "limit is a whole number >= 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_has_changed(case, tmp_path):
    settings, options, said = REFUSED[case]
    buffer = made(**settings)
    before = buffer.state_dict()["tensors"]
    with pytest.raises(InputError, match=said):
        load(buffer, files.d4rl(tmp_path, files.known()), **options)
    after = buffer.state_dict()["tensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_episode_that_does_not_fit_behind_others_that_do_changes_nothing(tmp_path):
    known = files.known((4, 2, 3))
    known[2] = known[2]._replace(action=np.zeros((3, 5), np.float32))
    with pytest.raises(InputError, match=r"episode_2: action: given shape \(3, 5\)"):
        load(buffer := made(), files.minari_hdf5(tmp_path, known))
    assert len(buffer) == 0


def test_a_buffer_that_has_rows_is_refused(tmp_path):
    path = files.d4rl(tmp_path, files.known((4,)))
    buffer = made(n_step=2)
    step = {"obs": np.zeros(3), "action": np.zeros(2), "next_obs": np.zeros(3), "reward": 0.0}
    buffer.add(**step, terminated=False, truncated=False)
    with pytest.raises(InputError, match="the buffer has 0 rows and 1 steps that wait"):
        load(buffer, path)
    with pytest.raises(InputError, match="in the middle of an episode"):
        load(buffer, path, pin=False)
    buffer.end_episode()
    with pytest.raises(InputError, match="the buffer has 1 rows"):
        load(buffer, path)
    assert load(buffer, path, pin=False).rows == 4
    with pytest.raises(InputError, match="load writes into a ReplayBuffer; given 'buffer'"):
        load("buffer", path)


def test_a_function_that_fails_is_not_taken_for_a_damaged_file(tmp_path):
    path = files.d4rl(tmp_path, files.known((4,)))
    with pytest.raises(AttributeError, match="gain"):
        load(made(), path, where=lambda episode: episode.gain > 3)


def test_damage_behind_the_episodes_asked_for_is_not_looked_at(tmp_path):
    import h5py

    path = files.minari_hdf5(tmp_path, files.known((4, 2)))
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
    assert load(made(), path, limit=1).rows == 4
    with pytest.raises(CorruptError, match="episode_1: rewards is missing"):
        load(made(), path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"successful_only": 1}, "successful_only is True or False"),
        ({"min_return": "3"}, "min_return is a number"),
        ({"min_return": float("nan")}, "min_return is a number"),
        ({"min_return": True}, "min_return is a number"),
    ],
)
def test_a_filter_checks_its_settings(settings, said):
    with pytest.raises(ConfigError, match=said):
        Filter(**settings)


@pytest.mark.parametrize("field", ["obs", "action", "reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e200])
def test_values_that_are_not_finite_are_refused_before_anything_has_changed(field, value, tmp_path):
    episodes = files.known((4, 3))
    broken = getattr(episodes[1], field).astype(np.float64)
    broken.reshape(len(broken), -1)[1, -1] = value
    path = files.d4rl(tmp_path, [episodes[0], episodes[1]._replace(**{field: broken})])
    buffer = made()
    with pytest.raises(InputError, match=rf"{field} of step 1 holds .*, which is not finite"):
        load(buffer, path)
    assert len(buffer) == 0
    assert load(buffer, path, limit=1).episodes == 1  # the other episode is whole
    fresh = made()
    whole = load(fresh, path, where=lambda e: all(np.isfinite(np.float32(e.reward))), limit=1)
    assert whole.rows == 4


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("rewards", [[np.nan, 0], [np.inf, 0], [-np.inf, np.inf], [-1e200, 0]])
@pytest.mark.filterwarnings("error")
def test_a_return_of_rewards_that_are_not_finite_is_not_compared(kind, rewards, tmp_path):
    good, bad = rewarded([3, 0])
    path = written(kind, tmp_path, [good, bad._replace(reward=np.array(rewards))])
    buffer = made(fields=SPLIT if kind == "robomimic" else FIELDS)
    said = "episode.1|demo_1|steps 2 to 3"
    with pytest.raises(InputError, match=rf"({said}).*reward of step 0 holds .*, which is not fin"):
        load(buffer, path, where=Filter(min_return=1), **SAID.get(kind, {}))
    assert len(buffer) == 0
    chosen = load(buffer, path, where=lambda e: e.reward[0] == 0, **SAID.get(kind, {}))
    assert (chosen.episodes, chosen.skipped) == (1, 1)  # whoever looks for them leaves them out


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rewards", [[np.nan, 0], [-np.inf, np.inf], [-1e200, 0]])
@pytest.mark.parametrize("kind", ["minari", "robomimic"])
def test_success_that_follows_from_rewards_is_not_known_where_they_are_not_finite(
    kind, rewards, tmp_path
):
    good, bad = rewarded([1, 0])
    path = written(kind, tmp_path, [good, bad._replace(reward=np.array(rewards))])
    spec = json.dumps({"reward_threshold": 1})
    (tmp_path / "metadata.json").write_text(json.dumps({"env_spec": spec}))
    said = SAID.get(kind, {})
    assert [episode.success for episode in read(path, **said)] == [True, None]
    buffer = made(fields=SPLIT if kind == "robomimic" else FIELDS)
    with pytest.raises(InputError, match=r"_1.*reward of step 0 holds .*, which is not finite"):
        load(buffer, path, where=Filter(successful_only=True), **said)
    assert len(buffer) == 0


def test_the_return_of_a_step_that_was_left_out_is_not_compared_either(tmp_path):
    (known,) = rewarded([np.nan])  # of the last of two steps
    path = files.lerobot(tmp_path / "demos", [known])
    options = {"last_step": "drop", "done_means": "truncated"}
    with pytest.raises(InputError, match="episode 0: its return is nan, since the reward of a st"):
        load(made(), path, where=Filter(min_return=1), **options)
    assert load(made(), path, **options).rows == 1


def test_an_episode_without_steps_has_a_return_of_its_own(tmp_path):
    (known,) = files.known((1,))
    path = files.lerobot(tmp_path / "demos", [known._replace(reward=np.array([2.0]))])
    (episode,) = read(path, last_step="drop", done_means="truncated")
    assert len(episode) == 0
    assert [Filter(min_return=least)(episode) for least in (1, 2, 3)] == [True, True, False]


def test_an_environment_that_asks_for_no_number_tells_no_success(tmp_path):
    path = files.minari_hdf5(tmp_path, rewarded([3]))
    spec = json.dumps({"reward_threshold": float("nan")})
    (tmp_path / "metadata.json").write_text(json.dumps({"env_spec": spec}))
    assert [episode.success for episode in read(path)] == [None]


def test_an_episode_that_the_file_calls_no_success_is_skipped_whatever_its_rewards(tmp_path):
    good, bad = rewarded([3, 0])
    tree = files.flat([good, bad._replace(reward=np.array([np.nan, 0]))])
    tree["infos/success"] = [False, True, False, False]
    path = files.hdf5(tmp_path / "a.hdf5", tree)
    where = Filter(successful_only=True, min_return=1)
    assert load(made(), path, where=where).skipped == 1


def test_what_follows_the_end_of_an_episode_may_be_anything(tmp_path):
    episode = files.known((3,))[0]
    obs = episode.obs.copy()
    obs[-1] = np.nan
    path = files.d4rl(tmp_path, [episode._replace(obs=obs, terminated=True)])
    assert load(made(), path).rows == 3


@pytest.mark.parametrize(("low", "high"), [(-0.5, 9.0), ([-9.0, -0.5], [9.0, 9.0])])
def test_actions_out_of_bounds_are_refused_with_the_first_of_them(low, high, tmp_path):
    episode = files.known((3,))[0]
    action = np.zeros((3, 2), np.float32)
    action[2, 1] = -0.6
    path = files.d4rl(tmp_path, [episode._replace(action=action)])
    buffer = made()
    with pytest.raises(InputError, match=r"of step 2 lies outside of \[.*\], the bounds"):
        load(buffer, path, action_bounds=(low, high))
    assert len(buffer) == 0
    assert load(buffer, path, action_bounds=(-0.6, 0.0)).rows == 3  # the bounds are inside


NUMBERED = {"obs": Field((3,)), "action": Field((), torch.int64)}
LARGEST = 20_000


def with_actions(kind, folder, action):
    """A file of one episode with these numbers for actions."""
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq

    (known,) = files.known((len(action),))
    if kind != "lerobot" and kind != "minari arrow":
        path = written(kind, folder, [known])
        with h5py.File(path, "a") as file:
            group = {"minari": "episode_0", "d4rl": "/", "robomimic": "data/demo_0"}[kind]
            del file[group]["actions"]
            file[group]["actions"] = action
        return path
    path = written(kind, folder / "demos", [known])
    told = path / ("metadata.json" if kind == "minari arrow" else "meta/info.json")
    info = json.loads(told.read_text())
    if kind == "minari arrow":
        info["action_space"] = json.dumps({"type": "Discrete", "n": LARGEST + 1})
        with pa.OSFile(str(path / "0/part-0.arrow"), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        column = pa.array(np.append(action, 0))  # the row of padding
        table = table.set_column(table.column_names.index("actions"), "actions", column)
        with pa.ipc.new_file(path / "0/part-0.arrow", table.schema) as writer:
            writer.write_table(table)
    else:
        info["features"]["action"] = {"dtype": "int64", "shape": [], "names": None}
        file = path / "data/chunk-000/file-000.parquet"
        table = pq.read_table(file)
        column = table.column_names.index("action")
        pq.write_table(table.set_column(column, "action", pa.array(action)), file)
    told.write_text(json.dumps(info))
    return path


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("action", [-1, -2, 20_001, 20_002, 2**62])
def test_numbered_actions_have_no_slack_at_their_bounds(kind, action, tmp_path):
    split = {**NUMBERED, "obs": SPLIT["obs"]} if kind == "robomimic" else NUMBERED
    given = np.array([0, LARGEST, action], np.int64)
    path = with_actions(kind, tmp_path, given)
    buffer = made(fields=split)
    said = rf"action {action} of step 2 lies outside of \[0, 20000\]"
    with pytest.raises(InputError, match=said):
        load(buffer, path, action_bounds=(0, LARGEST), **SAID.get(kind, {}))
    assert len(buffer) == 0
    assert load(buffer, path, **SAID.get(kind, {})).rows == 3  # none takes all


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.float32])
def test_rounding_is_forgiven_where_there_can_be_some(dtype, tmp_path):
    tree = files.flat(files.known((2,)))
    slack = 0 if np.dtype(dtype).kind in "iu" else 0.005  # a ten-thousandth of the width is 0.01
    bounds = (np.array([0, 5]), np.array([100, 105]))
    tree["actions"] = np.array([[0 - slack, 5 - slack], [100 + slack, 105 + slack]], dtype)
    path = files.hdf5(tmp_path / "inside.hdf5", tree)
    fields = {**FIELDS, "action": Field((2,), torch.from_numpy(tree["actions"]).dtype)}
    assert load(made(fields=fields), path, action_bounds=bounds).rows == 2
    for step, column, beyond in ((0, 1, 4), (1, 0, 101), (1, 1, 106)):
        other = tree["actions"].copy()
        other[step, column] = beyond
        path = files.hdf5(tmp_path / "outside.hdf5", {**tree, "actions": other})
        with pytest.raises(InputError, match=rf"of step {step} lies outside of \[0, 105\]"):
            load(made(fields=fields), path, action_bounds=bounds)


def test_numbers_that_no_float64_holds_are_compared_as_they_are(tmp_path):
    tree = files.flat(files.known((2,)))
    tree["actions"] = np.array([0, 2**53 + 1], np.int64)
    path = files.hdf5(tmp_path / "a.hdf5", tree)
    with pytest.raises(InputError, match=f"action {2**53 + 1} of step 1 lies outside of"):
        load(made(fields=NUMBERED), path, action_bounds=(0, 2**53))
    assert load(made(fields=NUMBERED), path, action_bounds=(0, 2**53 + 1)).rows == 2


def test_a_dict_of_observations_for_one_array_says_so(tmp_path):
    path = written("robomimic", tmp_path, files.known((2,)))
    with pytest.raises(InputError, match=r"the file has a dict of \['cube', 'hand'\]"):
        load(made(), path, done_means="truncated")


def as_dicts(episodes):
    """Episodes as arrays: the first with the observation after it in `obs`."""
    made = [
        {
            "obs": e.obs[:-1],
            "action": e.action,
            "reward": e.reward,
            "next_obs": e.obs[1:],
            "terminated": e.ends & e.terminated,
            "truncated": e.ends & (not e.terminated),
        }
        for e in episodes
    ]
    del made[0]["next_obs"], made[0]["truncated"]
    return [{**made[0], "obs": episodes[0].obs}, *made[1:]]


@pytest.mark.parametrize("kind", ["dicts", "demonstrations", "an iterator of lists"])
def test_episodes_that_are_given_are_loaded_as_those_of_a_file(kind, tmp_path):
    known = files.known((4, 1, 3))
    path = written("minari", tmp_path, known)
    given = list(read(path)) if kind == "demonstrations" else as_dicts(known)
    if kind == "an iterator of lists":
        given = ({name: values.tolist() for name, values in one.items()} for one in given)
    buffer, expected = (made(n_step=2) for _ in range(2))
    loaded, of_file = load(buffer, given), load(expected, path)
    assert (loaded.path, loaded.format) == (None, None)
    assert (loaded.episodes, loaded.rows, loaded.pinned) == (3, 8, True)
    assert loaded.returns == pytest.approx(of_file.returns)
    for name in ("obs", "action", "reward", "next_obs", "discount"):
        assert torch.equal(getattr(buffer.all(), name), getattr(expected.all(), name))
    buffer.check()


def test_episodes_that_are_given_say_what_they_are(tmp_path):
    given = [
        {**one, "success": won}
        for one, won in zip(as_dicts(files.known()), (True, False, True), strict=True)
    ]
    loaded = load(made(), given, where=Filter(successful_only=True))
    assert (loaded.episodes, loaded.skipped) == (2, 1)
    with pytest.raises(InputError, match=r"^none of its 3 episodes passes"):
        load(made(), given, where=Filter(min_return=1e9))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"terminated": None}, r"episode 1: missing: \['terminated'\]"),
        ({"rewrad": 0}, r"unknown: \['rewrad'\]; did you mean 'reward'"),
        ({"dones": 0}, "dones is either terminated or truncated"),
        ({"next_obs": None}, "episode 1: give next_obs, or 3 obs: one after the last of 2 steps"),
        ({"action": np.zeros((5, 2))}, r"episode 1: 2 rewards, but actions \[5\]"),
        ({"obs": [[1, 2, 3], [1]]}, "episode 1: "),
        ({"obs": np.zeros((2, 7))}, r"episode 1: obs: given shape"),
        ({"obs": torch.zeros(2, 3, requires_grad=True)}, "episode 1: .* requires grad"),
        ({"success": np.array([False, True])}, "episode 1: success is that of the whole episode"),
        ({"name": "b", 3: 4}, r"episode 1: .*unknown: \['3', 'name'\]"),
        ({"reward": 3.0}, "episode 1: "),
        ({"reward": [0.0, np.nan]}, "episode 1: reward of step 1 holds nan"),
    ],
)
def test_episodes_that_are_given_wrongly_leave_the_buffer_as_it_was(change, said):
    given = as_dicts(files.known([2, 2]))
    given[1] = {name: v for name, v in (given[1] | change).items() if v is not None}
    buffer = made()
    with pytest.raises(InputError, match=said):
        load(buffer, given)
    assert buffer.stats()["added"] == 0


def test_what_is_none_in_an_episode_is_as_if_it_were_left_out():
    given = as_dicts(files.known())
    nothing = dict.fromkeys(("next_obs", "truncated", "success", "seed", "env"))
    buffer, expected = made(), made()
    load(buffer, [nothing | one for one in given])
    load(expected, given)
    assert torch.equal(buffer.all().next_obs, expected.all().next_obs)
    assert torch.equal(buffer.all().discount, expected.all().discount)


@pytest.mark.parametrize(
    ("source", "options", "kind", "said"),
    [
        (3, {}, InputError, "episodes are a list of them; given 3"),
        ([3], {}, InputError, "episode 0 is a dict of arrays or a Demonstration; given 3"),
        ({"obs": 1}, {}, InputError, "episode 0 is a dict of arrays or a Demo.*; given 'obs'"),
        ([], {}, InputError, "no episodes in it"),
        ([], {"format": "d4rl"}, ConfigError, "format 'd4rl' does nothing with episodes that are"),
        ([], {"last_step": "drop"}, ConfigError, "last_step 'drop' does nothing with episodes"),
    ],
)
def test_what_is_no_list_of_episodes_is_refused(source, options, kind, said):
    with pytest.raises(kind, match=said):
        load(made(), source, **options)
