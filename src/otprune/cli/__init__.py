"""The command line. Thin: parse, call, print; each verb is a function whose signature is its flags."""

from otprune.cli.app import app

__all__ = ["app"]
