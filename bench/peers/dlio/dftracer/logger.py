"""DLIO asks for this module by the name that it had before release 2 of pydftracer."""

from dftracer.python import DFTRACER_ENABLE, dft_fn, dftracer

__all__ = ["DFTRACER_ENABLE", "dft_fn", "dftracer"]
