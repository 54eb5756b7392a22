"""Environments to act in. Importing this needs nothing; making one needs Gymnasium."""

from relive.envs.make import make_env, make_vector_env, num_actions

__all__ = ["make_env", "make_vector_env", "num_actions"]
