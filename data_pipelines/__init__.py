"""Public measurement files to one tidy table of observations, and the splits that test models on it."""
