"""Modules only: encoders, trunks, heads; their first weights come from a generator passed in."""

from relive.nn.adam import Adam
from relive.nn.conv import ConvEncoder
from relive.nn.encoders import DictEncoder, Encoder, FlatEncoder, encoder_for
from relive.nn.flat import FlatParameters
from relive.nn.heads import DuelingHead, QHead
from relive.nn.mlp import MLP, linear

__all__ = [
    "Adam",
    "ConvEncoder",
    "DictEncoder",
    "DuelingHead",
    "Encoder",
    "FlatEncoder",
    "FlatParameters",
    "MLP",
    "QHead",
    "encoder_for",
    "linear",
]
