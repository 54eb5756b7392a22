"""Loss functions: pure, of tensors, with their equation and source."""

from relive.losses.td import huber, squared, td_error, td_target, weighted_loss

__all__ = ["huber", "squared", "td_error", "td_target", "weighted_loss"]
