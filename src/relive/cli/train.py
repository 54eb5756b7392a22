"""`relive train ALGORITHM`: trains an agent, evaluates it, leaves a run directory with a report.

`relive train --resume RUN` goes on with a run that was stopped or killed.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from relive.agents import C51Config
from relive.cli.main import INTERRUPTED
from relive.cli.options import MISSING, parse, value_of, without
from relive.closest import unknown
from relive.envs import make_env
from relive.errors import ConfigError, MissingExtraError, ReliveError
from relive.runs import resume_command
from relive.training import TensorBoard, TrainConfig, preset, resume
from relive.training import run as run_training
from relive.training.algorithms import actions_of
from relive.training.checkpoint import require_same
from relive.training.config import SETTINGS_OF_SAMPLER, SETTINGS_OF_WINDOW
from relive.training.console import Console
from relive.training.presets import RECIPES, Recipe
from relive.training.records import RunResumed, RunStarted
from relive.training.run import run_settings, with_run_directory
from relive.warmup import warm_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relive.training import RunResult
    from relive.training.records import Record
    from relive.training.sinks import Sink

HELP = f"""usage: relive train ALGORITHM --env ENV [options]
       relive train --resume RUN

Train an agent, evaluate it, write a run directory with a report; or go on with a run that was
stopped or killed, from its last save.

algorithms: {", ".join(RECIPES)}

`relive train {RECIPES[0]} --env CartPole-v1 --help` lists the options, with the values that the
environment's preset gives them.
"""
ATOMS = (
    "from -10 to 10, for rewards clipped as those of Atari; discounted returns beyond that are not "
    "told apart: --agent.v-min, --agent.v-max"
)
NO_DEMONSTRATIONS = (
    "none: rlpd is meant to draw half of each batch from some (--demos.path); it learns from its "
    "own experience alone"
)
RESUME = "--resume"
TENSORBOARD = "tensorboard"  # folder in the run directory


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive train`."""
    if words and words[0] in {"-h", "--help"}:
        print(HELP, end="")
        return 0
    old_run = value_of(RESUME, words)
    if old_run is None and RESUME in words:
        raise ConfigError(f"{RESUME} names a run directory: relive train {RESUME} runs/NAME")
    if old_run is not None:
        result = go_on(Path(old_run), words)
    else:
        config = settings(words)
        result = begin(config, remarks(config, words))
    print("run    ", result.out)
    try:
        from relive.report.page import write_report

        print("report ", write_report(result.out))
    except MissingExtraError as missing:
        print("report  none:", missing)
    return INTERRUPTED if result.ended.interrupted else 0


def remarks(config: TrainConfig, words: Sequence[str]) -> dict[str, str]:
    """What nobody has chosen, and may be wrong for this environment."""
    found, agent, paper = {}, config.agent, C51Config()
    if isinstance(agent, C51Config) and (agent.v_min, agent.v_max) == (paper.v_min, paper.v_max):
        options = "--agent.v-min", "--agent.v-max"
        if all(value_of(option, words) is None for option in options):
            found["atoms"] = ATOMS
    if words[0] == "rlpd" and config.demos.path is None:
        found["demonstrations"] = NO_DEMONSTRATIONS
    return found


def begin(config: TrainConfig, remarks: Mapping[str, str]) -> RunResult:
    """A new run."""
    with closing(make_env(config.env)) as env:
        actions_of(env, config.algorithm)  # refuses before a directory is made
    kernels()
    config = with_run_directory(config)
    assert config.out is not None  # filled in
    try:
        sinks: list[Sink] = [TensorBoardLater(config.out / TENSORBOARD), Console()]
        return run_training(config, sinks, remarks=remarks)
    except ReliveError:
        with suppress(OSError):  # only an empty directory goes
            config.out.rmdir()
        raise


def go_on(out: Path, words: Sequence[str]) -> RunResult:
    """An old run; what is said of its settings must be what they are.

    Raises:
        ConfigError: Another algorithm, or a setting that differs.
    """
    saved = run_settings(out)
    others = without(RESUME, words)
    if others and not others[0].startswith("-"):
        if preset(_recipe(others[0]), saved.env).algorithm != saved.algorithm:
            raise ConfigError(f"the run in {out} trains {saved.algorithm}, given {others[0]}")
        others = others[1:]
    given = parse(TrainConfig, others, command=resume_command(out), default=saved)
    require_same(saved, given)
    kernels()
    return resume(out, [TensorBoardLater(out / TENSORBOARD), Console()], config=given)


def kernels() -> None:
    """Compiles what is not, and says how long it took."""
    print("kernels ", end="", flush=True)
    print(f"ready in {warm_up():.1f} s (compiled once on a machine, then loaded)")


def settings(words: Sequence[str]) -> TrainConfig:
    """The settings that the words ask for, from the preset of the algorithm and environment.

    Raises:
        ConfigError: A word, an option or a value that does not exist.
    """
    given = words[0] if words and not words[0].startswith("-") else None
    if given is None:
        raise ConfigError(f"name an algorithm: relive train {RECIPES[0]} --env CartPole-v1")
    recipe = _recipe(given)
    default = preset(recipe, value_of("--env", words) or MISSING)
    sampler, window = (value_of(f"--replay.{choice}", words) for choice in ("sampler", "window"))
    if sampler in SETTINGS_OF_SAMPLER or window in SETTINGS_OF_WINDOW:
        # what the preset says of its own sampler means nothing to another
        default = replace(default, replay=default.replay.drawing(sampler, window))
    return parse(
        TrainConfig,
        words[1:],
        command=f"relive train {recipe}",
        about=f"Train {recipe.upper()}. The defaults are those of the environment's preset.",
        default=default,
    )


def _recipe(word: str) -> Recipe:
    recipe = next((name for name in RECIPES if name == word), None)
    if recipe is None:
        raise ConfigError(unknown("algorithm", word, RECIPES, most=len(RECIPES)))
    return recipe


class TensorBoardLater:
    """TensorBoard that opens its folder when the run has begun; says if it is not installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sink: Sink | None = None

    def record(self, record: Record) -> None:
        """Passes the record on."""
        if isinstance(record, RunStarted | RunResumed):
            self.close()  # of a run that goes on on another device
            resumed_at = record.step + 1 if isinstance(record, RunResumed) else None
            try:
                self._sink = TensorBoard(self._folder, resumed_at)
            except MissingExtraError as missing:
                print("no TensorBoard:", missing)
        if self._sink is not None:
            self._sink.record(record)

    def close(self) -> None:
        """Closes what was opened."""
        if self._sink is not None:
            self._sink.close()
