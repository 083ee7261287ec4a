"""The command line. Thin: parse, call, print; each verb is a function whose signature is its flags."""

from otprune.cli import demo, reproduce, rounds, stages
from otprune.cli.app import app

__all__ = ["app", "demo", "reproduce", "rounds", "stages"]
