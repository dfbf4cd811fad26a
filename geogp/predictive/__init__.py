"""The distribution of a new observation, or of the surface, at each of N places."""

from geogp.predictive.distribution import Predictive
from geogp.predictive.peaks import Peak
from geogp.predictive.tails import standard_moments, student_tail

__all__ = ["Peak", "Predictive", "standard_moments", "student_tail"]
