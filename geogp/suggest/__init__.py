"""Where to measure next, and whether that would have done what it promises."""

from geogp.suggest.places import Suggestions, covariance_and_noise, greedy, suggest_places
from geogp.suggest.promises import Kept, try_suggestions

__all__ = ["Kept", "Suggestions", "covariance_and_noise", "greedy", "suggest_places", "try_suggestions"]
