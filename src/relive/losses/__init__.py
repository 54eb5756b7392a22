"""Loss functions: pure, of tensors, with their equation and source."""

from relive.losses.categorical import cross_entropy, expected_value, kl_divergence, project
from relive.losses.policy import (
    deterministic_policy_loss,
    deterministic_policy_slope,
    soft_policy_loss,
    soft_policy_slopes,
    soft_value,
    tanh_normal_log_prob,
    temperature_loss,
)
from relive.losses.td import (
    huber,
    squared,
    td_error,
    td_slope,
    td_target,
    weighted_loss,
    weighted_mean,
)
from relive.losses.twin import clipped_double_target, critics_loss, row_error, smoothed_action

__all__ = [
    "huber",
    "squared",
    "td_error",
    "td_slope",
    "td_target",
    "weighted_loss",
    "weighted_mean",
    "cross_entropy",
    "expected_value",
    "kl_divergence",
    "project",
    "clipped_double_target",
    "critics_loss",
    "row_error",
    "smoothed_action",
    "deterministic_policy_loss",
    "deterministic_policy_slope",
    "soft_policy_loss",
    "soft_policy_slopes",
    "soft_value",
    "tanh_normal_log_prob",
    "temperature_loss",
]
