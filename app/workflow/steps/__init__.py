"""A file each: `fit.py` has the function `fit` behind `geogp fit`, and what it gives back."""
