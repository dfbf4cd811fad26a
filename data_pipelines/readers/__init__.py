"""How published files are read: what the sources have behind them."""
