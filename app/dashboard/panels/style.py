"""What the charts have in common."""

BLUE, RED = "#3f86c1", "#c2554d"  # told apart by colour-blind eyes and by their shapes, on white and on black
HEIGHT = 260
