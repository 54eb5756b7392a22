"""Modules only: encoders, trunks, heads; their first weights come from a generator passed in."""

from relive.nn.action_scale import ActionScale
from relive.nn.actor_critic import Critics, DeterministicPolicy, GaussianPolicy, Temperature
from relive.nn.adam import Adam
from relive.nn.backprop import CriticBackprop, PolicyBackprop
from relive.nn.conv import ConvEncoder
from relive.nn.encoders import DictEncoder, Encoder, FlatEncoder, encoder_for
from relive.nn.ensemble import EnsembleMLP
from relive.nn.flat import FlatParameters
from relive.nn.heads import CategoricalHead, DuelingHead, QHead
from relive.nn.mlp import MLP, linear
from relive.nn.noisy import NetworkNoise, NoisyLinear, noisy
from relive.nn.streams import RandomStream

__all__ = [
    "ActionScale",
    "Adam",
    "CategoricalHead",
    "ConvEncoder",
    "CriticBackprop",
    "Critics",
    "DeterministicPolicy",
    "DictEncoder",
    "DuelingHead",
    "Encoder",
    "EnsembleMLP",
    "FlatEncoder",
    "FlatParameters",
    "GaussianPolicy",
    "MLP",
    "NetworkNoise",
    "NoisyLinear",
    "PolicyBackprop",
    "QHead",
    "RandomStream",
    "Temperature",
    "encoder_for",
    "linear",
    "noisy",
]
