"""Is x a first-order or a second-order stationary point?  Says so with numbers."""

from momentous.certify.certify import Certificate, Verdict, certify

__all__ = ["Certificate", "Verdict", "certify"]
