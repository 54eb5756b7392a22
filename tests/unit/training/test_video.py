"""Films of episodes."""

import sys

import av
import gymnasium
import numpy as np
import pytest

from relive import Field
from relive.agents import DQN, DQNConfig
from relive.cli.main import main
from relive.errors import ConfigError, MissingExtraError, UnsupportedError
from relive.training import Video, evaluate, save_policy


class Shows(gymnasium.Env):
    """Ends after four steps; its picture is grey, 40 brighter at every step, of odd size."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  # Gymnasium's form
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):  # noqa: ARG002  # Gymnasium's signature
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):  # noqa: ARG002
        self.t += 1
        return np.zeros(2, np.float32), 1.0, False, self.t == 4, {}

    def render(self):
        return np.full((33, 47, 3), 40 + 40 * self.t, np.uint8)


class Blind(Shows):
    metadata = {"render_modes": ["human", "ansi"], "render_fps": 8}  # noqa: RUF012


class StopsWorking(Shows):
    def step(self, action):
        if self.t == 3:
            raise ZeroDivisionError
        return super().step(action)


class Still:
    def act_greedy(self, obs):
        return np.zeros(len(obs), np.int64)


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    registered = dict(gymnasium.registry)
    for kind in (Shows, Blind, StopsWorking):
        gymnasium.register(f"{kind.__name__}-v0", kind)
    monkeypatch.delenv("DISPLAY", raising=False)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(registered)


def frames(path):
    """Brightness of each picture of a film, its size and its speed."""
    with av.open(str(path)) as film:
        (stream,) = film.streams.video
        pictures = [frame.to_ndarray(format="rgb24") for frame in film.decode(stream)]
        rate = float(stream.average_rate)
    return [float(picture.mean()) for picture in pictures], pictures[0].shape, rate


def test_every_state_of_every_episode_is_a_picture(tmp_path):
    with Video(tmp_path / "a.mp4") as video:
        evaluate(Still(), "Shows-v0", [1, 2], film=video.take)
    brightness, shape, rate = frames(tmp_path / "a.mp4")
    assert brightness == pytest.approx([40, 80, 120, 160, 200] * 2, abs=3)
    assert (shape, rate) == ((34, 48, 3), 8.0)  # an even number of rows and columns
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


def test_a_film_does_not_change_what_is_played(tmp_path):
    with Video(tmp_path / "a.mp4") as video:
        filmed = evaluate(Still(), "CartPole-v1", [1, 2], film=video.take)
    assert filmed == evaluate(Still(), "CartPole-v1", [1, 2])
    brightness, shape, rate = frames(tmp_path / "a.mp4")
    assert len(brightness) == sum(filmed) + 2
    assert (shape, rate) == ((400, 600, 3), 50.0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.gif", r"ends in \.mp4; given"),
        ("a", r"ends in \.mp4; given"),
        ("there.mp4", "is there already"),
        ("missing/a.mp4", "there is no folder"),
    ],
)
def test_a_film_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path, name, said):
    (tmp_path / "there.mp4").write_bytes(b"mine")
    with pytest.raises(ConfigError, match=said):
        Video(tmp_path / name)
    assert (tmp_path / "there.mp4").read_bytes() == b"mine"


def test_a_film_that_breaks_off_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), Video(tmp_path / "a.mp4") as video:
        evaluate(Still(), "StopsWorking-v0", [1], film=video.take)
    assert list(tmp_path.iterdir()) == []


def test_a_film_without_a_picture_is_no_file(tmp_path):
    with Video(tmp_path / "a.mp4"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "picture",
    [np.zeros((32, 32), np.uint8), np.full((32, 32, 3), 2.0), np.zeros((64, 32, 3), np.uint8)],
    ids=["grey", "floats", "another size"],
)
def test_pictures_are_of_one_kind_and_size(tmp_path, picture):
    with Video(tmp_path / "a.mp4") as video:
        video.take(np.zeros((32, 32, 3), np.uint8), 30)
        with pytest.raises(UnsupportedError, match="picture"):
            video.take(picture, 30)
    assert len(frames(tmp_path / "a.mp4")[0]) == 1


def test_an_environment_without_pictures_is_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedError, match=r"Blind-v0 gives no pictures.* human, ansi,"):
        evaluate(Still(), "Blind-v0", [1], film=Video(tmp_path / "a.mp4").take)


def test_a_package_that_is_missing_is_told_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"relive\[video\]"):
        Video(tmp_path / "a.mp4")


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text('{"env": "Shows-v0"}')
    save_policy(DQN(Field((2,)), 2, DQNConfig(hidden=(4,))), folder / "policy.safetensors")
    return folder


def test_eval_films_the_episodes_and_says_where_once(run, tmp_path, capsys):
    words = ["eval", str(run), "--episodes", "2", "--video", str(tmp_path / "two episodes.mp4")]
    assert main(words) == 0
    assert f"video      {tmp_path / 'two episodes.mp4'}\n" in capsys.readouterr().out
    assert len(frames(tmp_path / "two episodes.mp4")[0]) == 10
    assert main(words) == 2
    assert "is there already; remove it, or name another file" in capsys.readouterr().err


def test_tiny_pictures_of_parts_of_one_are_painted_large(tmp_path):
    picture = np.zeros((10, 10, 3))
    picture[:, 5:] = 1.0  # as MinAtar paints
    with Video(tmp_path / "film.mp4") as video:
        video.take(picture, 5)
    with av.open(str(tmp_path / "film.mp4")) as film:
        (frame,) = film.decode(film.streams.video[0])
        seen = frame.to_ndarray(format="rgb24")
    assert seen.shape == (240, 240, 3)
    assert seen[:, :100].max() < 20
    assert seen[:, 140:].min() > 235
