"""What a fit goes by: its folder while it is unfinished, its table where that is too large to hold."""
