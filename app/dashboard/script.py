"""What Streamlit runs for each visit and each change: one call."""

from app.dashboard.page import page

page()
