"""What maskreg must reach, measured in one run on one machine, and the page that shows it."""
