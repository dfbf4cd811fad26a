"""The page: settings beside the map, and below it what the model says about the marked place. Run by Streamlit."""

from app.dashboard import panels

panels.page()
