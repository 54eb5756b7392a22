"""How many operations of torch an update, and a step with one, are made of: counted, on the CPU.

Each is one launch on a GPU, or a few; views and what only looks at shapes are none.

    PYTHONPATH=src python -m benchmarks.gpu.operations
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from relive.agents.kinds import CONFIGS
from relive.gpu.means import MetricMeans
from relive.training import ReplayConfig, TrainConfig, build
from relive.training.rollout import rollout_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.agents.kinds import Algorithm

DISCRETE = ("dqn", "c51")
NO_LAUNCH = {"aten::_unsafe_view", "aten::lift_fresh", "aten::empty", "aten::detach"}


class Counted(TorchDispatchMode):  # type: ignore[misc]  # torch gives no type
    """Counts operations that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        is_view = any(
            result.alias_info is not None and not result.alias_info.is_write
            for result in schema.returns
        )
        self.count += not is_view and schema.name not in NO_LAUNCH
        return func(*args, **(kwargs or {}))


def counted(call: Callable[[], object]) -> int:
    """Operations of a call; what the buffer does is left out, and counted by itself."""
    with Counted() as mode:
        call()
    return mode.count


def operations(algorithm: Algorithm) -> tuple[int, int, int]:
    """Of an agent with the settings it has by default.

    Returns:
        Operations of a step of the environments without the buffer, of an update in which nothing
        is due, and of one in which something is.
    """
    env = "torch/CartPole-v1" if algorithm in DISCRETE else "torch/Pendulum-v1"
    config = TrainConfig(
        env=env,
        num_envs=64,
        device="cpu",
        replay=ReplayConfig(capacity=1000),
        agent=CONFIGS[algorithm](),
    )
    parts = build(config)
    rollout, buffer, means = rollout_of(parts), parts.buffer, MetricMeans()
    rollout.begin()
    rollout.step()
    batch = buffer.sample(64)
    add = buffer.add

    def unseen(**step: Any) -> None:
        with _disable_current_modes():
            add(**step)

    def update(due: bool) -> Callable[[], None]:
        return lambda: means.add(parts.agent.learn([batch], due).metrics)

    update(True)()  # the first one makes the sums of metrics
    buffer.add = unseen  # type: ignore[method-assign]
    return counted(rollout.step), counted(update(False)), counted(update(True))


def table() -> str:
    """A row an agent."""
    rows = ((name, *operations(name)) for name in CONFIGS)
    return "\n".join(
        [
            "| agent | step of the environments | update | update that does more |",
            "| --- | ---: | ---: | ---: |",
            *(f"| {name} | {step} | {update} | {more} |" for name, step, update, more in rows),
        ]
    )


if __name__ == "__main__":
    print(table())
