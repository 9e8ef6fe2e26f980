"""The planner as a web page: sliders change a plan, and plots follow."""
